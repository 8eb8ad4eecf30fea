"""The hold: a compaction that lost races asks writers of changes for time, by a table property.

Deletion vectors of one flush undo the rewriting of all files that they touch, so that a compaction
that takes longer than the time between two flushes would never end. Rules:

1. The property is the number of seconds that a writer of changes waits, once per batch, by its own
   clock: clocks of machines are never compared. Writers of appended rows ignore it.
2. A batch that somebody waits for (a revocation, a close) does not wait.
3. The compaction removes the property; if it has crashed, the next commit of changes does, unless
   Iceberg refuses that for the commit's date (`formats.iceberg.commit_dates`).
"""

from typing import Final

HOLD_PROPERTY: Final = "trimtab.compaction-hold"
MAX_HOLD_S: Final = 300.0


def format_hold(seconds: float) -> str:
    """Return the property's value for a hold of at most MAX_HOLD_S."""
    return f"{min(MAX_HOLD_S, seconds):.1f}"


def parse_hold(text: str | None) -> float:
    """Return the seconds of a hold, 0 for none and for a text that is no number."""
    try:
        return min(MAX_HOLD_S, float(text or 0))
    except ValueError:  # set by hand
        return 0.0
