"""Certificates of what `size` decides, by the names of group and heuristics."""

from collections.abc import Iterable

from trimtab.assignor.analysis.certificate.certificate import Certificate, certify_all
from trimtab.assignor.analysis.certificate.column_generation import Left
from trimtab.assignor.heuristics.registry import get
from trimtab.assignor.model import Group, IntArray, Load, Policy
from trimtab.assignor.open_mode import pack_open
from trimtab.assignor.problem import frame


def certify_sizes(
    situation: tuple[Group, Load, Policy],
    heuristics: Iterable[str],
    *,
    moves_cost: float,
    left: Left,
) -> dict[str, Certificate]:
    """Certify what `size` decides with each heuristic; one search serves all of them.

    Consumers count as they may be filled, headroom included: a move of that much is one consumer's
    worth. Raises BadProblem, UnknownHeuristic, BrokenHeuristic.
    """
    problem = frame(*situation, spare=True).problem
    decisions: dict[str, IntArray] = {}
    for name in heuristics:
        entry = get(name)
        framed = frame(*situation, spare=True, racks=entry.racks)
        decisions[name] = pack_open(entry, framed.problem)
    return certify_all(problem, decisions, moves_cost=moves_cost, left=left)
