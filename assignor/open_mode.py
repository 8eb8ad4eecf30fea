"""Open mode for every heuristic, including those that do not pack by capacity.

A heuristic that does not pack by capacity (sticky, lag-aware, rack-aware) gets the fewest members
whose capacities add up to the load, at least one: the members with most of the load, then new ones.
With equal capacities that is load ÷ capacity, rounded up.
"""

import math
from dataclasses import replace

import numpy as np

from trimtab.assignor.heuristics.heuristic import Heuristic, run_heuristic
from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem
from trimtab.assignor.packing import CAPACITY_TOLERANCE, sum_loads


def pack_open_mode(entry: Heuristic, problem: PackingProblem) -> IntArray:
    """Return the bin of each partition of an open problem; bins from M on are added members."""
    if entry.packs_by_capacity or not len(problem.weight):
        return run_heuristic(entry, problem)
    kept, added = _select_members(problem)
    members = len(problem.capacity)
    number = np.append(kept, np.arange(members, members + added)).astype(np.int32)
    bins = run_heuristic(entry, _build_closed_problem(problem, kept, added))
    return number[bins]


def _select_members(problem: PackingProblem) -> tuple[IntArray, int]:
    """Return the members to keep, in order, and the number to add."""
    total = float(problem.weight.sum())
    load = sum_loads(problem.owner, problem.weight, len(problem.capacity))
    count = sum_loads(problem.owner, np.ones_like(problem.weight), len(problem.capacity))
    kept: list[int] = []
    room = 0.0
    for member in np.lexsort((-count, -load)).tolist():  # most load first: least is moved
        if kept and room * (1 + CAPACITY_TOLERANCE) >= total:
            break
        kept.append(member)
        room += float(problem.capacity[member])
    missing = total - room * (1 + CAPACITY_TOLERANCE)
    if missing > 0 or not kept:
        added = max(
            1, math.ceil(missing / ((problem.new_member_capacity or math.inf) * (1 + CAPACITY_TOLERANCE)))
        )
        added = min(added, len(problem.weight))  # more would have nothing to read
    else:
        added = int(not problem.subscribed[problem.topic].any(axis=1).all())
    if not added:
        kept += _keep_topic_readers(problem, kept)
    return np.array(sorted(kept), dtype=np.int32), added


def _keep_topic_readers(problem: PackingProblem, kept: list[int]) -> list[int]:
    """Return the further members to keep, so that every topic with a reader keeps one."""
    more: list[int] = []
    for readers in problem.subscribed[np.unique(problem.topic)]:
        if readers.any() and not readers[kept + more].any():
            more.append(int(readers.argmax()))
    return more


def _build_closed_problem(problem: PackingProblem, kept: IntArray, added: int) -> PackingProblem:
    """Return the closed problem of the kept members and the added ones."""
    # UNASSIGNED (-1) picks the last entry.
    renumber = np.full(len(problem.capacity) + 1, UNASSIGNED, dtype=np.int32)
    renumber[kept] = np.arange(len(kept), dtype=np.int32)
    everything = np.ones((len(problem.subscribed), added), dtype=np.bool_)
    return replace(
        problem,
        owner=renumber[problem.owner],
        capacity=np.append(problem.capacity[kept], np.full(added, problem.new_member_capacity or 0.0)),
        subscribed=np.concatenate([problem.subscribed[:, kept], everything], axis=1),
        new_member_capacity=None,
        racks=problem.racks and problem.racks.select_members(kept, added),
    )
