"""Parsing of heuristic names: "name[:preset][:setting=number]…", as in "steady:rack_cost=0.5"."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.common.errors import UnknownHeuristicError


@dataclass(frozen=True, slots=True)
class HeuristicSpec:
    """A parsed heuristic name."""

    base: str
    preset: str = ""  # or a number, as text
    settings: Mapping[str, float] = field(default_factory=dict[str, float])


def parse_heuristic_spec(spec: str) -> HeuristicSpec:
    """Parse a heuristic name. Raises UnknownHeuristicError for an invalid or repeated setting."""
    base, *words = spec.split(":")
    preset = words.pop(0) if words and "=" not in words[0] else ""
    settings: dict[str, float] = {}
    for word in words:
        setting, equals, text = word.partition("=")
        value = parse_number(text)
        if not equals or value is None or not (math.isfinite(value) and value >= 0):
            raise UnknownHeuristicError(
                f"heuristic {spec!r}: {word!r} is not a setting; write setting=number, from 0 on"
            )
        if setting in settings:
            raise UnknownHeuristicError(f"heuristic {spec!r} has {setting!r} twice")
        settings[setting] = value
    return HeuristicSpec(base, preset, settings)


def parse_number(text: str) -> float | None:
    """Return the number in the text, or None."""
    if "_" in text or text != text.strip():  # float() accepts both
        return None
    try:
        return float(text)
    except ValueError:
        return None
