"""Table formats: how data files are written and committed."""
