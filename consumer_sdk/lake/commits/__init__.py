"""Commits of tables: the fence of offsets, retries of races, the hold of compactions, maintenance."""
