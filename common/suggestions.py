"""Spelling suggestions for unknown names."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggest_name(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return "; did you mean 'mbf'?" with the nearest known name, "" without one; `cutoff` as in difflib."""
    nearest = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
