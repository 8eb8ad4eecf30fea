"""Offline analysis: simulations and recorded streams."""
