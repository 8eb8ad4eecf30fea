"""Certificates of what `size` decides, by the names of group and heuristics."""

from collections.abc import Iterable

from trimtab.assignor.analysis.certificate.certificate import Certificate, certify_decisions
from trimtab.assignor.analysis.certificate.column_generation import SecondsLeft
from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import ConsumerGroup, IntArray, Load, PlacementPolicy
from trimtab.assignor.open_mode import pack_open_mode
from trimtab.assignor.problem import build_problem


def certify_sizes(
    situation: tuple[ConsumerGroup, Load, PlacementPolicy],
    heuristics: Iterable[str],
    *,
    moves_cost: float,
    left: SecondsLeft,
) -> dict[str, Certificate]:
    """Certify what `size` decides with each heuristic; one search serves all of them.

    Consumers count as they may be filled, headroom included: a move of that much is one consumer's
    worth. Raises InvalidProblemError, UnknownHeuristicError, BrokenHeuristicError.
    """
    problem = build_problem(*situation, open_mode=True).problem
    decisions: dict[str, IntArray] = {}
    for name in heuristics:
        entry = get_heuristic(name)
        framed = build_problem(*situation, open_mode=True, weigh_racks=entry.weighs_racks)
        decisions[name] = pack_open_mode(entry, framed.problem)
    return certify_decisions(problem, decisions, moves_cost=moves_cost, left=left)
