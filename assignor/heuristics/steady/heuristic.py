"""Steady: few consumers, few moves, and room for what comes next."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.heuristics.steady.pack import even, pack
from trimtab.assignor.heuristics.steady.params import DEFAULT, PRESETS, Knobs, knobs_of, tuned


def _of(knobs: Knobs) -> Heuristic:
    return Heuristic(
        name="steady",
        pack=partial(pack, knobs=knobs),
        summary="few consumers and few moves, now and at the next tick; presets weigh the two",
        source="Trimtab: repair, ejection chains and large neighbourhood search",
        presets={name: partial(pack, knobs=known) for name, known in PRESETS.items()},
        tuned=lambda move_cost: partial(pack, knobs=tuned(move_cost)),
        level=partial(even, knobs=knobs),
        settings={"rack_cost": Knobs(0, 0).rack_cost},
        varied=_varied,
        racks=knobs.rack_cost > 0,
    )


def _varied(preset: str, settings: Mapping[str, float]) -> Heuristic:
    return _of(replace(knobs_of(preset), rack_cost=settings.get("rack_cost", 0.0)))


HEURISTIC: Final = _of(PRESETS[DEFAULT])
