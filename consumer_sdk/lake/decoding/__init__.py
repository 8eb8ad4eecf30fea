"""Decoders from record values to typed columns."""
