"""Heuristics by name: the built-in ones, and those of third parties by the entry-point group below.

A third party's entry point names a `Heuristic`, or a plain function from `Problem` to bins. It is
loaded when it is asked for, never before, so a broken one cannot hurt the others.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Final, cast

from trimtab.assignor.heuristics import (
    bf,
    bfd,
    ff,
    ffd,
    lag_aware,
    mbf,
    mbfp,
    mwf,
    mwfp,
    nf,
    nfd,
    sticky,
    wf,
    wfd,
)
from trimtab.assignor.heuristics.heuristic import Heuristic, Pack
from trimtab.assignor.heuristics.heuristic_spec import number, taken_apart
from trimtab.assignor.heuristics.rack_aware import heuristic
from trimtab.assignor.heuristics.steady import heuristic as steady
from trimtab.common.errors import BrokenHeuristic, UnknownHeuristic

GROUP: Final = "trimtab.heuristics"
DEFAULT: Final = "steady"

_BUILT_IN: Final = {
    module.HEURISTIC.name: module.HEURISTIC
    for module in (
        steady,
        nf,
        nfd,
        ff,
        ffd,
        wf,
        wfd,
        bf,
        bfd,
        mwf,
        mbf,
        mwfp,
        mbfp,
        lag_aware,
        sticky,
        heuristic,
    )
}


def names() -> tuple[str, ...]:
    """Return every name: the built-in ones, then those of third parties; loads none."""
    return (*_BUILT_IN, *sorted(_third_parties()))


def get(name: str) -> Heuristic:
    """Return the heuristic called "name", "name:preset" or, where it can be tuned, "name:0.7".

    Where it has settings they may follow: "name:preset:setting=0.5". Raises UnknownHeuristic,
    suggesting the nearest name; BrokenHeuristic for an entry point that cannot be loaded.
    """
    wanted = taken_apart(name)
    entry = _BUILT_IN.get(wanted.base) or _load(wanted.base)
    if entry is None:
        raise UnknownHeuristic(_unknown(f"heuristic {name!r}", wanted.base, names()))
    for setting in wanted.settings:
        if setting not in entry.settings:
            what = f"setting {setting!r} of {wanted.base}"
            raise UnknownHeuristic(_unknown(what, setting, entry.settings))
    if not wanted.preset and not wanted.settings:
        return entry
    tuning = number(wanted.preset) if entry.tuned else None
    if wanted.preset and tuning is None and wanted.preset not in entry.presets:
        known = (*entry.presets, *(["or a number"] if entry.tuned else []))
        what = f"preset {wanted.preset!r} of {wanted.base}"
        raise UnknownHeuristic(_unknown(what, wanted.preset, known))
    if entry.varied is not None:
        return replace(entry.varied(wanted.preset, wanted.settings), name=name)
    if entry.tuned is not None and tuning is not None:
        return replace(entry, name=name, pack=entry.tuned(tuning))
    return replace(entry, name=name, pack=entry.presets[wanted.preset])


def usable(name: str) -> Heuristic:
    """Return it as `get` does, where the package that it needs is installed.

    Raises BrokenHeuristic where it is not, saying which extra brings it.
    """
    entry = get(name)
    if entry.needs and not installed(entry):
        raise BrokenHeuristic(entry.needs.missing(name))
    return entry


def installed(entry: Heuristic) -> bool:
    """Tell whether the package that it needs is there."""
    return entry.needs is None or find_spec(entry.needs.package) is not None


def _unknown(what: str, wanted: str, known: Iterable[str]) -> str:
    known = tuple(known)
    wanted = wanted.lower()
    swapped = [name for name in known if sorted(name) == sorted(wanted)]
    near = swapped or get_close_matches(wanted, known, n=1, cutoff=0.3)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{what} is not known; {hint}there is: {', '.join(known) or 'none'}"


def _third_parties() -> dict[str, EntryPoint]:
    return {e.name: e for e in entry_points(group=GROUP) if e.name not in _BUILT_IN}


def _load(name: str) -> Heuristic | None:
    entry_point = _third_parties().get(name)
    if entry_point is None:
        return None
    try:
        loaded: object = entry_point.load()
    except Exception as error:  # whatever a third party's import may raise
        raise BrokenHeuristic(
            f"heuristic {name!r}: entry point {entry_point.value!r} cannot be loaded: {error!r}; "
            "mend or remove the package that brings it"
        ) from error
    if isinstance(loaded, Heuristic):
        return replace(loaded, name=name)
    if callable(loaded):
        return _wrapped(name, entry_point.value, cast("Pack", loaded))
    raise BrokenHeuristic(
        f"heuristic {name!r}: its entry point {entry_point.value!r} gives {type(loaded).__name__}; "
        "it must give a Heuristic or a function from Problem to bins"
    )


def _wrapped(name: str, origin: str, pack: Callable[..., object]) -> Heuristic:
    summary = (pack.__doc__ or "").strip().partition("\n")[0]
    return Heuristic(name, cast("Pack", pack), summary or "no summary", origin)
