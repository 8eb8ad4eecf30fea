"""Steady: few consumers, few moves, and room for what comes next (`trimtab.assignor.steady`)."""

from functools import partial
from typing import Final

from trimtab.assignor.heuristic import Heuristic
from trimtab.assignor.model import IntArray, Problem
from trimtab.assignor.steady.knobs import DEFAULT, PRESETS, tuned
from trimtab.assignor.steady.pack import even
from trimtab.assignor.steady.pack import pack as _pack


def pack(problem: Problem) -> IntArray:
    """Pack with the preset `balanced`."""
    return _pack(problem, PRESETS[DEFAULT])


HEURISTIC: Final = Heuristic(
    name="steady",
    pack=pack,
    summary="few consumers and few moves, now and at the next tick; presets weigh the two",
    source="Trimtab: repair, ejection chains and large neighbourhood search",
    presets={name: partial(_pack, knobs=knobs) for name, knobs in PRESETS.items()},
    tuned=lambda move_cost: partial(_pack, knobs=tuned(move_cost)),
    level=even,
)
