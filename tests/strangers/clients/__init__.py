"""Consumers of each client; none imports Trimtab. `strangers/events.py` has the lines that they print."""
