"""Capacities that a decision can calculate with, in a module of its own: consumers use it without numpy."""

from typing import Final

# Bytes/s. Beyond it sums are infinite or lost in rounding, and a search for a scale takes a thousand steps.
LEAST_CAPACITY: Final = 1e-6
GREATEST_CAPACITY: Final = 1e18


def is_valid_capacity(bytes_per_s: float) -> bool:
    """Return whether a decision can calculate with this capacity; False for NaN."""
    return LEAST_CAPACITY <= bytes_per_s <= GREATEST_CAPACITY
