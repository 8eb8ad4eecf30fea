"""Settings that the page's what-if changes, from a query, and as lines of a settings file. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from trimtab.assignor.heuristics.heuristic_spec import parse_heuristic_spec, parse_number
from trimtab.assignor.heuristics.registry import get_installed_heuristic, list_heuristics
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.settings.settings import SidecarSettings

TUNED_HEURISTIC: Final = "steady"  # the one that λ tunes
MOVE_COST: Final = "lambda"
NUMBERS: Final[Mapping[str, type]] = {"headroom": float, "min": int, "max": int}


def describe_settings(settings: SidecarSettings) -> dict[str, Any]:
    """Return the present values of what can be changed, and the heuristics to choose from."""
    return {
        MOVE_COST: settings.move_cost_weight,
        "heuristic": parse_heuristic_spec(settings.heuristic).base,
        "heuristics": [name for name in list_heuristics() if get_installed_heuristic(name).packs_by_capacity],
        **{name: getattr(settings, name) for name in NUMBERS},
    }


def change_settings(
    settings: SidecarSettings, query: Mapping[str, str]
) -> tuple[SidecarSettings, tuple[str, ...]]:
    """Return the settings changed by `query`, and the changes as lines of a settings file.

    Raises SidecarSettingError, UnknownHeuristicError.
    """
    changes: dict[str, Any] = {
        name: _parse_number(name, query[name], kind) for name, kind in NUMBERS.items() if name in query
    }
    lines = [f"{name}: {value:g}" for name, value in changes.items()]
    placement, placement_lines = _change_heuristic(settings, query)
    changed = replace(settings, **changes, **placement)
    problems = list(changed.find_problems(set(changes) | set(placement)))
    if problems:
        raise SidecarSettingError("; ".join(problems))
    get_installed_heuristic(changed.effective_heuristic)
    return changed, (*placement_lines, *lines)


def _change_heuristic(
    settings: SidecarSettings, query: Mapping[str, str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    present = parse_heuristic_spec(settings.heuristic).base
    name = query.get("heuristic", present)
    dropped = () if settings.move_cost is None else ("# and take move-cost out",)
    if MOVE_COST not in query or name != TUNED_HEURISTIC:
        if name == present:
            return {}, ()
        return {"heuristic": name, "move_cost": None}, (f"heuristic: {name}", *dropped)
    weight = _parse_number(MOVE_COST, query[MOVE_COST], float)
    if settings.move_cost is not None and name == present:
        seconds = weight * max(settings.cooldown, settings.interval)
        return {"move_cost": seconds}, (f"move-cost: {seconds:g} s",)
    kept = parse_heuristic_spec(settings.heuristic).settings.items() if name == present else ()
    spec = f"{TUNED_HEURISTIC}:{weight:g}" + "".join(f":{n}={v:g}" for n, v in kept)
    return {"heuristic": spec, "move_cost": None}, (f"heuristic: {spec}", *dropped)


def _parse_number(name: str, text: str, kind: type) -> Any:
    number = parse_number(text)
    if number is None or (kind is int and not number.is_integer()):
        example = "a whole number, like 4" if kind is int else "a number, like 0.8"
        raise SidecarSettingError(f"{name}={text!r}: write {example}")
    return kind(number)
