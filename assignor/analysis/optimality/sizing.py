"""Certificates of `size_group` by heuristic."""

from collections.abc import Iterable

from trimtab.assignor.analysis.optimality.certificate import Certificate, certify_decisions
from trimtab.assignor.analysis.optimality.column_generation import SecondsLeft
from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import ConsumerGroup, IntArray, Load, PlacementPolicy
from trimtab.assignor.open_mode import pack_open_mode
from trimtab.assignor.problem import build_problem, index_group


def certify_sizes(
    situation: tuple[ConsumerGroup, Load, PlacementPolicy],
    heuristics: Iterable[str],
    *,
    moves_cost: float,
    left: SecondsLeft,
) -> dict[str, Certificate]:
    """Certify `size_group` with each heuristic in one search.

    A consumer's worth of load is its capacity times the headroom. Raises InvalidProblemError,
    UnknownHeuristicError, BrokenHeuristicError.
    """
    group, load, policy = index_group(situation[0]), *situation[1:]
    problem = build_problem(group, load, policy, open_mode=True).problem
    decisions: dict[str, IntArray] = {}
    for name in heuristics:
        entry = get_heuristic(name)
        indexed = build_problem(group, load, policy, open_mode=True, weigh_racks=entry.weighs_racks)
        decisions[name] = pack_open_mode(entry, indexed.problem)
    return certify_decisions(problem, decisions, moves_cost=moves_cost, left=left)
