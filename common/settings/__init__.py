"""The model of settings, files that hold them, and defaults that several packages share."""
