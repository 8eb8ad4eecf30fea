"""Ordinary dirty settings on a real broker: what the sidecar reports in them, compared with what is true."""
