"""Streams of write rates: the file format, generators and replay through heuristics."""
