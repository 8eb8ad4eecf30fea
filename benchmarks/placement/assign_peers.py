"""Measures one assignor on one problem, in its own process: `python assign_peers.py PEER PROBLEM`.

Prints one line of JSON: median CPU and wall ms of the assignor on decoded input (`assign_`) and from
encoded subscriptions to encoded assignments (`wire_`), the same for the second round that a
cooperative move needs (`second_`), and the quality of the assignment. With `--memory` also the peak
memory that one call allocates.
"""

import gc
import json
import sys
import tracemalloc
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from benchmarks.placement import assign_problem
from benchmarks.placement.assign_problem import Problem, Subscriptions
from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.clients.leader_plugin import decode_member_data, decode_subscriptions, lead_group
from trimtab.assignor.model import UNASSIGNED, IntArray, Load, PlacementPolicy
from trimtab.assignor.model.load_arrays import PartitionMeasurements, TopicMeasurements
from trimtab.assignor.rebalance.group_snapshot import GroupSnapshot, snapshot_from_subscriptions
from trimtab.assignor.rebalance.leader import LeaderView, assign_round
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData

RUNS = 9
"""Measured calls after one warm-up call; fewer if they take long."""


@dataclass(frozen=True)
class Peer:
    """The functions of an assignor: `assign` is timed, `ready` decodes its input, `wire` maps bytes to bytes.

    `again` returns the subscriptions of the second round; None without a second round.
    """

    ready: Callable[[Mapping[str, bytes]], Any]
    assign: Callable[[Any], Any]
    wire: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
    again: Callable[[Mapping[str, bytes]], Mapping[str, bytes]] | None = None


class Cluster:
    """The cluster metadata for an assignor."""

    def __init__(self, problem: Problem) -> None:
        sizes = np.diff(problem.partition_index.start).tolist()
        self._numbers = {t: set(range(n)) for t, n in zip(problem.partition_index.topics, sizes, strict=True)}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._numbers.get(topic)

    def topics(self) -> set[str]:
        return set(self._numbers)


def prepare_trimtab_peer(problem: Problem, heuristic: str) -> Peer:
    """Trimtab's core as the SDK calls it: from bytes to arrays to bytes."""
    cluster, view, policy = (
        Cluster(problem),
        LeaderView(_find_partition_loads(problem)),
        PlacementPolicy(heuristic=heuristic),
    )
    counts = {t: cluster.partitions_for_topic(t) for t in problem.partition_index.topics}

    def ready(subscriptions: Mapping[str, bytes]) -> GroupSnapshot:
        read = decode_subscriptions(subscriptions)
        data = {member: decode_member_data(member, s.user_data) for member, s in read.items()}
        return snapshot_from_subscriptions(read, data, problem.partition_index)

    def wire(subscriptions: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return lead_group(decode_subscriptions(subscriptions), counts, counts, view, policy).encode()

    return Peer(
        ready,
        lambda snapshot: assign_round(snapshot, view, policy),
        wire,
        lambda out: _second_round(problem, out),
    )


def prepare_plugin_peer(problem: Problem, heuristic: str) -> Peer:
    """Trimtab's plugin in a plain KafkaConsumer: kafka-python decodes an object per partition."""
    view = LeaderView(_find_partition_loads(problem))
    ours = TrimtabAssignor(heuristic, view=lambda: view, on_round=lambda _: None)
    return replace(_kafka_python(problem, ours), again=lambda out: _second_round(problem, out))


def kafka_python(problem: Problem) -> Peer:
    return replace(
        _kafka_python(problem, CooperativeStickyAssignor()),
        again=lambda out: _second_round(problem, out, data=lambda _: b""),
    )


def _kafka_python(problem: Problem, assignor: Any) -> Peer:
    cluster = Cluster(problem)

    def ready(subscriptions: Mapping[str, bytes]) -> list[Any]:
        decode = ConsumerProtocolSubscription.decode
        return [SimpleNamespace(member_id=m, metadata=decode(d)) for m, d in subscriptions.items()]

    def assign(members: list[Any]) -> dict[str, Any]:
        return dict(assignor.assign(cluster, members))

    def wire(subscriptions: Mapping[str, bytes]) -> Mapping[str, bytes]:
        assignments = assign(ready(subscriptions))
        return {m: a if isinstance(a, bytes) else a.encode() for m, a in assignments.items()}

    return Peer(ready, assign, wire)


def prepare_aiokafka_peer(problem: Problem) -> Peer:
    """aiokafka's sticky assignor: eager, without a second round."""
    cluster = Cluster(problem)

    def ready(subscriptions: Mapping[str, bytes]) -> dict[str, Any]:
        read = {m: ConsumerProtocolSubscription.decode(d) for m, d in subscriptions.items()}
        return {
            m: ConsumerProtocolMemberMetadata(0, list(s.topics), s.user_data or b"") for m, s in read.items()
        }

    def assign(members: dict[str, Any]) -> dict[str, Any]:
        return dict(StickyPartitionAssignor.assign(cluster, members))

    def wire(subscriptions: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {m: a.encode() for m, a in assign(ready(subscriptions)).items()}

    return Peer(ready, assign, wire)


def _find_partition_loads(problem: Problem) -> Load:
    partition_index = problem.partition_index
    spans = zip(partition_index.topics, partition_index.start[:-1], partition_index.start[1:], strict=True)
    columns = {t: TopicMeasurements(partition_index.number[a:b], problem.rate[a:b]) for t, a, b in spans}
    return Load(PartitionMeasurements(columns))


def _owned_user_data(user_data: bytes) -> bytes:
    assignment = AssignmentUserData.decode(user_data)
    return MemberUserData(
        decision_fingerprint=assignment.decision_fingerprint, promised=assignment.promised
    ).encode()


def _second_round(
    problem: Problem, out: Mapping[str, bytes], data: Callable[[bytes], bytes] = _owned_user_data
) -> dict[str, bytes]:
    """Return the subscriptions of members that own the partitions just assigned."""
    sent: dict[str, bytes] = {}
    for member, encoded in out.items():
        user_data = ConsumerProtocolAssignment.decode(encoded).user_data or b""
        owned = encoded[2 : len(encoded) - 4 - len(user_data)]
        sent[member] = assign_problem.encode_subscription(problem, data(user_data), owned, 6)
    return sent


def decode_owners(problem: Problem, out: Mapping[str, bytes]) -> IntArray:
    """Return the new owner of each partition, (P,)."""
    read = {m: ConsumerProtocolAssignment.decode(encoded) for m, encoded in out.items()}
    index = {t: i for i, t in enumerate(problem.partition_index.topics)}
    owner = np.full(len(problem.partition_index), UNASSIGNED, dtype=np.int32)
    for number, member in enumerate(problem.ids):
        for topic, numbers in read[member].assigned_partitions:
            owner[problem.partition_index.start[index[topic]] + np.array(numbers, dtype=np.int32)] = number
    return owner


def time_calls(
    name: str, prepare: Callable[[], Any], call: Callable[[Any], Any], seconds: float
) -> tuple[dict[str, float], Any]:
    """Return medians and the last result; a call that cannot be repeated within `seconds` counts cold."""
    cpu: list[float] = []
    wall: list[float] = []
    start_all = perf_counter()
    while True:
        ready = prepare()
        gc.collect()
        start, start_cpu = perf_counter(), process_time()
        assignments = call(ready)
        cpu.append((process_time() - start_cpu) * 1000)
        wall.append((perf_counter() - start) * 1000)
        if perf_counter() - start_all > seconds or len(cpu) > RUNS:
            break
    cpu, wall = (cpu[1:] or cpu), (wall[1:] or wall)
    medians = {f"{name}_cpu_ms": round(median(cpu), 2), f"{name}_wall_ms": round(median(wall), 2)}
    return medians, assignments


def measure_peer(
    problem: Problem, peer: Peer, subscriptions: Mapping[str, bytes], seconds: float
) -> dict[str, Any]:
    figures, out = _time_both_forms("", peer, subscriptions, seconds)
    if peer.again is not None:
        second, out = _time_both_forms("second_", peer, peer.again(out), seconds)
        figures |= second
    return figures | assign_problem.measure_quality(problem, decode_owners(problem, out))


def _time_both_forms(
    round_: str, peer: Peer, subscriptions: Mapping[str, bytes], seconds: float
) -> tuple[dict[str, float], Mapping[str, bytes]]:
    alone, _ = time_calls(f"{round_}assign", lambda: peer.ready(subscriptions), peer.assign, seconds)
    wire, out = time_calls(f"{round_}wire", lambda: subscriptions, peer.wire, seconds)
    return alone | wire, out


def measure_peak_memory(peer: Peer, subscriptions: Mapping[str, bytes]) -> float:
    """Return the peak memory of one call from bytes to bytes, in MB."""
    tracemalloc.start()
    peer.wire(subscriptions)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(most / 1e6, 1)


def prepare_named_peer(
    name: str, problem: Problem, subscriptions: Subscriptions
) -> tuple[Peer, Mapping[str, bytes]]:
    """Return the peer of a name and the subscriptions in its encoding."""
    kind, _, heuristic = name.partition("/")
    if kind == "kafka-python":
        return kafka_python(problem), subscriptions.cooperative
    if kind == "aiokafka":
        return prepare_aiokafka_peer(problem), subscriptions.eager
    return {"trimtab": prepare_trimtab_peer, "plugin": prepare_plugin_peer}[kind](
        problem, heuristic
    ), subscriptions.trimtab


def main() -> None:
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("peer", help="kafka-python, aiokafka, trimtab/NAME or plugin/NAME")
    arguments.add_argument("problem", type=Path)
    arguments.add_argument("--memory", action="store_true")
    arguments.add_argument("--seconds", type=float, default=1.5, help="time limit for repeated calls")
    options = arguments.parse_args()
    problem, subscriptions = assign_problem.read_problem(options.problem)
    peer, sent = prepare_named_peer(options.peer, problem, subscriptions)
    figures = measure_peer(problem, peer, sent, options.seconds)
    if options.memory:
        figures["peak_mb"] = measure_peak_memory(peer, sent)
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
