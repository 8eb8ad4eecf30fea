"""The docs site: its generated pages and pictures, and the checks of its text."""
