"""Verification: compares a table row by row with its offsets and the topic."""
