"""Co-partitioned topics: their partitions of one number are a task, which one consumer reads (KIP-925).

A join of two topics, or a state kept per key, needs the same keys of both in one consumer. Tasks
replace partitions before a heuristic sees the problem, so each heuristic places them, by its own
rules. A task weighs what its partitions weigh together. Topics that no member reads together are
left apart, since no member could have their tasks; a warning says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from trimtab.assignor.model import (
    UNASSIGNED,
    BoolArray,
    FloatArray,
    IntArray,
    PackingProblem,
    RackTopology,
    RateForecast,
    TopicPartition,
)
from trimtab.assignor.model.packing import sum_loads
from trimtab.assignor.model.problem import IndexedProblem
from trimtab.common.units import format_name_list

TopicGroups: TypeAlias = Sequence[Sequence[str]]

MAX_NAMES_IN_WARNING: Final = 3  # a warning is one line of a log


@dataclass(frozen=True, slots=True, eq=False)
class TaskProblem:
    """A problem of K tasks made of P partitions."""

    problem: PackingProblem  # its partitions are the tasks
    task: IntArray  # (P,) task of each partition
    _weight: FloatArray  # (P,) of each partition

    def expand(self, bins: IntArray) -> IntArray:
        """Return the bin of each partition (P,) from those of the tasks (K,)."""
        return bins[self.task]

    def merge_bins(self, bins: IntArray) -> IntArray:
        """Return the bin of each task (K,): of its partitions' the one with most of its weight.

        UNASSIGNED if none of them reads the whole task.
        """
        return _merge_bins(bins, self.task, self._weight, self.problem.topic, self.problem.subscribed)


def merge_tasks(indexed: IndexedProblem, co_partitioned: TopicGroups) -> TaskProblem:
    """Return the problem of the tasks; without co-partitioned topics it is the problem itself."""
    problem = indexed.problem
    joined = list(_list_joined(indexed, co_partitioned)) if co_partitioned else []
    if not joined:
        return TaskProblem(problem, np.arange(len(problem.weight), dtype=np.int32), problem.weight)
    first_topic = np.arange(len(problem.subscribed))
    subscribed = problem.subscribed.copy()
    for topics in joined:
        first_topic[topics] = topics[0]
        subscribed[topics[0]] = subscribed[topics].all(axis=0)
    kept, topic = np.unique(first_topic[problem.topic], return_inverse=True)
    number = indexed.group.partition_index.number[indexed.item]
    _, example, task = np.unique((topic << 32) + number, return_index=True, return_inverse=True)
    task = task.astype(np.int32)
    merged = _merge_partitions(problem, task, topic[example].astype(np.int32), subscribed[kept])
    return TaskProblem(merged, task, problem.weight)


def list_task_mates(partition: TopicPartition, co_partitioned: TopicGroups) -> Iterator[TopicPartition]:
    """Yield the other partitions of a partition's task, whether they exist or not."""
    for topics in co_partitioned:
        if partition.topic in topics:
            yield from (partition._replace(topic=topic) for topic in topics if topic != partition.topic)
            return


def list_task_warnings(indexed: IndexedProblem, co_partitioned: TopicGroups) -> Iterator[str]:
    """Yield why partitions of co-partitioned topics are, or their keys may be, apart."""
    if not co_partitioned:
        return
    index = indexed.group.partition_index
    counts = dict(zip(index.topics, np.diff(index.start).tolist(), strict=True))
    rows = _number_topics(indexed)
    for topics in co_partitioned:
        missing = [topic for topic in topics if topic not in counts]
        if missing:
            yield f"co-partitioned topics that the group does not read: {_join_names(missing)}"
        if len({counts[topic] for topic in topics if topic in counts}) > 1:
            shown = [f"{topic} {counts[topic]}" for topic in topics if topic in counts]
            yield (
                f"co-partitioned topics have different numbers of partitions ({_join_names(shown)}): "
                "equal keys may be in different ones"
            )
        there = [rows[topic] for topic in topics if topic in rows]
        if len(there) > 1 and not _is_read_together(indexed.problem, there):
            yield f"no member subscribes to all of {_join_names(topics)}: their partitions are placed apart"


def _join_names(names: Sequence[str]) -> str:
    return format_name_list(names[:MAX_NAMES_IN_WARNING], len(names))


def _list_joined(indexed: IndexedProblem, co_partitioned: TopicGroups) -> Iterator[list[int]]:
    """Yield the rows of topics to join, ascending; a topic of several groups belongs to the first."""
    rows = _number_topics(indexed)
    for topics in co_partitioned:
        there = sorted(rows[t] for t in set(topics) if t in rows)
        if len(there) > 1 and _is_read_together(indexed.problem, there):
            for topic in topics:
                rows.pop(topic, None)
            yield there


def _number_topics(indexed: IndexedProblem) -> dict[str, int]:
    index = indexed.group.partition_index
    of_row = np.unique(index.topic[indexed.item])  # the problem numbers the read topics in their order
    return {index.topics[topic]: row for row, topic in enumerate(of_row.tolist())}


def _is_read_together(problem: PackingProblem, topics: list[int]) -> bool:
    members = problem.subscribed.shape[1]  # an added member reads every topic
    return not members or bool(problem.subscribed[topics].all(axis=0).any())


def _merge_partitions(
    problem: PackingProblem, task: IntArray, topic: IntArray, subscribed: BoolArray
) -> PackingProblem:
    total = partial(sum_loads, task, count=len(topic))
    forecast, racks = problem.forecast, problem.racks
    return replace(
        problem,
        weight=total(problem.weight),
        owner=_merge_bins(problem.owner, task, problem.weight, topic, subscribed),
        topic=topic,
        lag=total(problem.lag),
        subscribed=subscribed,
        forecast=forecast and RateForecast(total(forecast.drift), total(forecast.variance)),
        racks=racks and RackTopology(racks.member_rack, _merge_remote(task, racks.remote, problem.weight)),
    )


def _merge_bins(
    bins: IntArray, task: IntArray, weight: FloatArray, topic: IntArray, subscribed: BoolArray
) -> IntArray:
    """Return each task's bin with the most weight, then most partitions, then the lowest number."""
    held = np.flatnonzero(bins != UNASSIGNED)
    held = held[subscribed[topic[task[held]], bins[held]]]  # without those who read a part of the task
    width = max(1, subscribed.shape[1])
    pair, part = np.unique(task[held].astype(np.int64) * width + bins[held], return_inverse=True)
    order = np.lexsort((pair, -np.bincount(part), -np.bincount(part, weight[held]), pair // width))
    tasks, first = np.unique(pair[order] // width, return_index=True)
    merged = np.full(len(topic), UNASSIGNED, dtype=np.int32)
    merged[tasks] = pair[order][first] % width
    return merged


def _merge_remote(task: IntArray, remote: BoolArray, weight: FloatArray) -> BoolArray:
    """Return from which racks each task (K, R + 1) is remote: at least half of its weight is."""
    count = int(task.max(initial=UNASSIGNED)) + 1
    share = np.where(sum_loads(task, weight, count)[task] > 0, weight, 1.0)  # of an idle task, by count
    total = sum_loads(task, share, count)
    merged: BoolArray = np.column_stack(
        [2 * sum_loads(task, share * far, count) >= total for far in remote.T]
    )
    return merged
