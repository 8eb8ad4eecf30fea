"""Lag of a partition in records, in the words of KAFKA-5337."""


def compute_lag(end: int, committed: int | None, beginning: int, *, from_beginning: bool) -> int:
    """Return the records between the group's committed offset and the end of the log.

    Without a commit it is what `auto.offset.reset` makes it: end - beginning where the group would
    begin at the beginning ("earliest"), 0 where it would begin at the end ("latest"). A committed
    offset that the log has passed by (retention) counts from the beginning.
    """
    if committed is None:
        return max(0, end - beginning) if from_beginning else 0
    return max(0, end - max(committed, beginning))
