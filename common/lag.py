"""Offsets, and the consumer lag of a partition in records (KAFKA-5337)."""

from typing import Final

MAX_OFFSET: Final = 2**63 - 1
# Values of auto.offset.reset; "earliest (or any other value)" counts from the beginning (KAFKA-5337).
RESET_TO_END_VALUES: Final = ("latest", "largest", "end")


def compute_lag(end: int, committed: int | None, beginning: int, *, from_beginning: bool) -> int:
    """Return the number of records between the committed offset and the log end offset."""
    if committed is None:  # auto.offset.reset decides: earliest (from_beginning) or latest
        return max(0, end - beginning) if from_beginning else 0
    # retention may have deleted records after the commit, which then cannot be consumed
    return max(0, end - max(committed, beginning))
