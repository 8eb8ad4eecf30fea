"""Rows of a batch: decoders of each topic, projections of appends and of upserts."""
