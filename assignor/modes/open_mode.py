"""Open mode for every heuristic, including those that do not pack by capacity.

These (sticky, lag-aware, rack-aware) get the fewest members whose capacities add up to the load, at
least one: the members with most of the load, then new ones.
"""

import math
from dataclasses import replace

import numpy as np

from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem
from trimtab.assignor.model.heuristic import Heuristic, run_heuristic
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE, append_readers, sum_loads


def pack_open_mode(entry: Heuristic, problem: PackingProblem) -> IntArray:
    """Return the bin of each partition of an open problem; bins from M on are added members."""
    if entry.packs_by_capacity or not len(problem.weight):
        return run_heuristic(entry, problem)
    kept, added = _select_members(problem)
    members = len(problem.capacity)
    number = np.append(kept, np.arange(members, members + added)).astype(np.int32)
    bins = run_heuristic(entry, close_problem(problem, kept, added))
    return number[bins]


def _select_members(problem: PackingProblem) -> tuple[IntArray, int]:
    """Return the members to keep, in order, and the number to add."""
    added_capacity = (problem.new_member_capacity or math.inf) * (1 + CAPACITY_TOLERANCE)
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
        added = max(1, math.ceil(missing / added_capacity))
        added = min(added, len(problem.weight))  # more would have nothing to read
    else:
        added = int(not problem.subscribed[problem.topic].any(axis=1).all())
    if not added:  # an added member reads every topic; without one each topic must keep a reader
        for readers in problem.subscribed[np.unique(problem.topic)]:
            if readers.any() and not readers[kept].any():
                kept.append(int(readers.argmax()))
    return np.array(sorted(kept), dtype=np.int32), added


def close_problem(problem: PackingProblem, kept: IntArray, added: int) -> PackingProblem:
    """Return the closed problem of these members of an open one, in their order, and of added members."""
    # UNASSIGNED (-1) picks the last entry.
    renumber = np.full(len(problem.capacity) + 1, UNASSIGNED, dtype=np.int32)
    renumber[kept] = np.arange(len(kept), dtype=np.int32)
    return replace(
        problem,
        owner=renumber[problem.owner],
        capacity=np.append(problem.capacity[kept], np.full(added, problem.new_member_capacity or 0.0)),
        subscribed=append_readers(problem.subscribed[:, kept], added),
        new_member_capacity=None,
        racks=problem.racks and problem.racks.select_members(kept, added),
    )
