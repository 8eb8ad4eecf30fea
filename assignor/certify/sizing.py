"""Certificates of what `size` decides, by the names of group and heuristics."""

from collections.abc import Iterable

from trimtab.assignor.certify.certificate import Certificate, certify_all
from trimtab.assignor.certify.search import Left
from trimtab.assignor.counting import pack_open
from trimtab.assignor.model import Group, Load, Policy
from trimtab.assignor.problem import frame
from trimtab.assignor.registry import get


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
    decisions = {name: pack_open(get(name), problem) for name in heuristics}
    return certify_all(problem, decisions, moves_cost=moves_cost, left=left)
