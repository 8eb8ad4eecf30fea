"""The `Heuristic` value of steady and its variants."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from trimtab.assignor.heuristics.steady.pack import balance_load, pack_steady
from trimtab.assignor.heuristics.steady.params import (
    DEFAULT_PRESET,
    STEADY_PRESETS,
    SteadyParams,
    params_for_move_cost,
    resolve_params,
)
from trimtab.assignor.model.heuristic import Heuristic


def _build_heuristic(params: SteadyParams) -> Heuristic:
    return Heuristic(
        name="steady",
        pack=partial(pack_steady, params=params),
        summary="few consumers and few moves, now and at the next tick; presets weigh the two",
        source="Trimtab: repair, ejection chains and large neighbourhood search",
        presets={name: partial(pack_steady, params=known) for name, known in STEADY_PRESETS.items()},
        make_tuned=lambda move_cost: partial(pack_steady, params=params_for_move_cost(move_cost)),
        balance_load=partial(balance_load, params=params),
        settings={name: getattr(SteadyParams(0, 0), name) for name in ("rack_cost", "spread_budget")},
        make_variant=_make_variant,
        weighs_racks=params.rack_cost > 0,
    )


def _make_variant(preset: str, settings: Mapping[str, float]) -> Heuristic:
    rack_cost, budget = (settings.get(name, 0.0) for name in ("rack_cost", "spread_budget"))
    return _build_heuristic(replace(resolve_params(preset), rack_cost=rack_cost, spread_budget=budget))


STEADY: Final = _build_heuristic(STEADY_PRESETS[DEFAULT_PRESET])
