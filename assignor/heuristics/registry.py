"""Heuristics by name: built-in ones and third-party ones from an entry-point group.

An entry point names a `Heuristic`, or a function from `PackingProblem` to bins.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Final, cast

from trimtab.assignor.heuristics.classic.any_fit import ANY_FIT_HEURISTICS
from trimtab.assignor.heuristics.classic.lag_aware import LAG_AWARE
from trimtab.assignor.heuristics.classic.modified_any_fit import MODIFIED_ANY_FIT_HEURISTICS
from trimtab.assignor.heuristics.classic.sticky import STICKY
from trimtab.assignor.heuristics.heuristic_spec import parse_heuristic_spec, parse_number
from trimtab.assignor.heuristics.rack_aware.heuristic import RACK_AWARE
from trimtab.assignor.heuristics.steady.heuristic import STEADY
from trimtab.assignor.model.heuristic import Heuristic, PackFunction
from trimtab.common.errors import BrokenHeuristicError, UnknownHeuristicError, suggest_name

ENTRY_POINT_GROUP: Final = "trimtab.heuristics"

_BUILT_IN_HEURISTICS: Final = {
    built_in.name: built_in
    for built_in in (STEADY, *ANY_FIT_HEURISTICS, *MODIFIED_ANY_FIT_HEURISTICS, LAG_AWARE, STICKY, RACK_AWARE)
}


def list_heuristics() -> tuple[str, ...]:
    """Return all names, built-in ones first, without loading any."""
    return (*_BUILT_IN_HEURISTICS, *sorted(_find_entry_points()))


@lru_cache  # one decision of the sidecar asks many times; an entry point costs a scan of all packages
def get_heuristic(name: str) -> Heuristic:
    """Return the heuristic of "name", "name:preset", "name:0.7" or "name:preset:setting=0.5".

    Raises UnknownHeuristicError with the nearest name, BrokenHeuristicError for an entry point that
    cannot be loaded.
    """
    spec = parse_heuristic_spec(name)
    entry = _BUILT_IN_HEURISTICS.get(spec.base) or _load_entry_point(spec.base)
    if entry is None:
        raise UnknownHeuristicError(_explain_unknown(f"heuristic {name!r}", spec.base, list_heuristics()))
    for setting in spec.settings:
        if setting not in entry.settings:
            what = f"setting {setting!r} of {spec.base}"
            raise UnknownHeuristicError(_explain_unknown(what, setting, entry.settings))
    if not spec.preset and not spec.settings:
        return entry
    tuning = parse_number(spec.preset) if entry.make_tuned else None
    if spec.preset and tuning is None and spec.preset not in entry.presets:
        known = (*entry.presets, *(["or a number"] if entry.make_tuned else []))
        what = f"preset {spec.preset!r} of {spec.base}"
        raise UnknownHeuristicError(_explain_unknown(what, spec.preset, known))
    if entry.make_variant is not None:
        return replace(entry.make_variant(spec.preset, spec.settings), name=name)
    if entry.make_tuned is not None and tuning is not None:
        return replace(entry, name=name, pack=entry.make_tuned(tuning))
    return replace(entry, name=name, pack=entry.presets[spec.preset])


def get_installed_heuristic(name: str) -> Heuristic:
    """Return a heuristic as `get_heuristic` does, if its dependency is installed.

    Raises BrokenHeuristicError with the extra to install otherwise.
    """
    entry = get_heuristic(name)
    if entry.dependency and not is_installed(entry):
        raise BrokenHeuristicError(entry.dependency.explain_missing(name))
    return entry


def is_installed(entry: Heuristic) -> bool:
    """Return whether the heuristic's dependency is installed."""
    return entry.dependency is None or find_spec(entry.dependency.package) is not None


def _explain_unknown(label: str, given: str, known: Iterable[str]) -> str:
    known = tuple(known)
    given = given.lower()
    # To difflib "mfb" is as near to "mwf" as to "mbf"; swapped letters are the likelier error.
    swapped = [name for name in known if sorted(name) == sorted(given)]
    hint = suggest_name(swapped[0] if swapped else given, known, cutoff=0.5) or ";"
    return f"{label} is not known{hint} there is: {', '.join(known) or 'none'}"


def _find_entry_points() -> dict[str, EntryPoint]:
    return {e.name: e for e in entry_points(group=ENTRY_POINT_GROUP) if e.name not in _BUILT_IN_HEURISTICS}


def _load_entry_point(name: str) -> Heuristic | None:
    entry_point = _find_entry_points().get(name)
    if entry_point is None:
        return None
    try:
        loaded: object = entry_point.load()  # on first use: a broken one does not affect the others
    except Exception as error:  # a third party's import may raise anything
        raise BrokenHeuristicError(
            f"heuristic {name!r}: entry point {entry_point.value!r} cannot be loaded: {error!r}; "
            "repair or remove the package that provides it"
        ) from error
    if isinstance(loaded, Heuristic):
        return replace(loaded, name=name)
    if callable(loaded):
        summary = (loaded.__doc__ or "").strip().partition("\n")[0]
        return Heuristic(name, cast("PackFunction", loaded), summary or "no summary", entry_point.value)
    raise BrokenHeuristicError(
        f"heuristic {name!r}: its entry point {entry_point.value!r} gives {type(loaded).__name__}; "
        "it must give a Heuristic or a function from PackingProblem to bins"
    )
