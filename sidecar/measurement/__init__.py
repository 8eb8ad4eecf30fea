"""Measurement: from broker readings to write rates, backlog and freshness."""
