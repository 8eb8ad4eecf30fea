"""Vocabulary of the sidecar, without I/O: what is observed of a group, and what the settings ask for."""
