"""Consumer lag of a partition, in records (KAFKA-5337)."""


def compute_lag(end: int, committed: int | None, beginning: int, *, from_beginning: bool) -> int:
    """Return the records between the committed offset and the log end offset.

    Without a commit, `auto.offset.reset` decides: `end - beginning` for "earliest"
    (`from_beginning`), 0 for "latest".
    """
    if committed is None:
        return max(0, end - beginning) if from_beginning else 0
    # Retention may have deleted the records after the commit: they cannot be consumed any more.
    return max(0, end - max(committed, beginning))
