"""Offline analysis: optimality certificates, simulations and recorded streams."""
