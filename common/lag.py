"""Consumer lag of a partition, in records (KAFKA-5337)."""


def compute_lag(end: int, committed: int | None, beginning: int, *, from_beginning: bool) -> int:
    """Return the records between the committed offset and the log end offset.

    Without a commit, `auto.offset.reset` decides: `end - beginning` for "earliest"
    (`from_beginning`), 0 for "latest".
    """
    if committed is None:
        return max(0, end - beginning) if from_beginning else 0
    # retention may have deleted records after the commit, which then cannot be consumed
    return max(0, end - max(committed, beginning))
