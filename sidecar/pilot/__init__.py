"""Pilot: carries plans to the broker's assignor plugin, for groups of the new protocol (KIP-848)."""
