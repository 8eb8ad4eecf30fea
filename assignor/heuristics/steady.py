"""Steady: few consumers, few moves, and room for what comes next (`trimtab.assignor.steady`)."""

from functools import partial
from typing import Final

from trimtab.assignor.heuristic import Heuristic
from trimtab.assignor.steady.knobs import DEFAULT, PRESETS, tuned
from trimtab.assignor.steady.pack import even, pack

HEURISTIC: Final = Heuristic(
    name="steady",
    pack=partial(pack, knobs=PRESETS[DEFAULT]),
    summary="few consumers and few moves, now and at the next tick; presets weigh the two",
    source="Trimtab: repair, ejection chains and large neighbourhood search",
    presets={name: partial(pack, knobs=knobs) for name, knobs in PRESETS.items()},
    tuned=lambda move_cost: partial(pack, knobs=tuned(move_cost)),
    level=even,
)
