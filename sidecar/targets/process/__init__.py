"""Replica target `process`: workers as local processes."""
