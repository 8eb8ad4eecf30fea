"""Subscriptions to names and patterns of topics at once, for which kafka-python has one pattern."""

import re
from collections.abc import Sequence


def build_topic_pattern(topics: Sequence[str]) -> str | None:
    """Return one pattern for names mixed with "^patterns"; None if there are names only."""
    if not any(t.startswith("^") for t in topics):
        return None
    parts = [t if t.startswith("^") else f"^{re.escape(t)}$" for t in topics]
    return "|".join(f"(?:{part})" for part in parts)
