"""Selects the one of several sidecars that manages the group."""
