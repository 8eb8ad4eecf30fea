"""Assignor plugin of the broker: carries out the plan's target in groups of the new protocol (KIP-848)."""
