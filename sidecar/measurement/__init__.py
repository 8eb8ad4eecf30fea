"""Measurement: from readings to write rates, backlog and freshness. No I/O."""
