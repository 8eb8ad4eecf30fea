"""One assignor on one problem, in a process of its own: `python assign_peers.py PEER PROBLEM`.

Prints one line of JSON: median CPU and wall ms of the assignor alone (`assign_`, on what it works
on in memory) and from the members' bytes to theirs (`wire_`), then the same of the second round
that a cooperative move needs (`second_`), and the quality of what came out. With `--memory`, the
peak of what one call allocates.
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

import assign_problem
import numpy as np
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from assign_problem import Problem, Sent
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.clients.leader_plugin import decode_member_data, decode_subscriptions, lead_group
from trimtab.assignor.load_arrays import PartitionMeasurements, TopicMeasurements
from trimtab.assignor.model import UNASSIGNED, IntArray, Load, PlacementPolicy
from trimtab.assignor.rebalance.group_snapshot import GroupSnapshot, snapshot_from_subscriptions
from trimtab.assignor.rebalance.leader import LeaderView, assign_round
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData

RUNS = 9
"""Calls that are measured, after one to warm up; fewer where they take long."""


@dataclass(frozen=True)
class Peer:
    """How to time an assignor: `ready` is not timed, `assign` is; both sides of `wire` are bytes.

    `again` gives what the members send in the second round; None where there is none.
    """

    ready: Callable[[Mapping[str, bytes]], Any]
    assign: Callable[[Any], Any]
    wire: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
    again: Callable[[Mapping[str, bytes]], Mapping[str, bytes]] | None = None


class Cluster:
    """The metadata that an assignor asks for."""

    def __init__(self, given: Problem) -> None:
        sizes = np.diff(given.universe.start).tolist()
        self._numbers = {t: set(range(n)) for t, n in zip(given.universe.topics, sizes, strict=True)}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._numbers.get(topic)

    def topics(self) -> set[str]:
        return set(self._numbers)


def trimtab(given: Problem, heuristic: str) -> Peer:
    """Our core, as the SDK calls it: bytes, arrays, bytes."""
    cluster, view, own = (Cluster(given), LeaderView(_load(given)), PlacementPolicy(heuristic=heuristic))
    counts = {t: cluster.partitions_for_topic(t) for t in given.universe.topics}

    def ready(raw: Mapping[str, bytes]) -> GroupSnapshot:
        read = decode_subscriptions(raw)
        data = {member: decode_member_data(member, s.user_data) for member, s in read.items()}
        return snapshot_from_subscriptions(read, data, given.universe)

    def wire(raw: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return lead_group(decode_subscriptions(raw), counts, counts, view, own).encode()

    return Peer(ready, lambda roll: assign_round(roll, view, own), wire, lambda out: _again(given, out))


def plugin(given: Problem, heuristic: str) -> Peer:
    """Our plugin in a plain KafkaConsumer: kafka-python decodes, an object for each partition."""
    view = LeaderView(_load(given))
    ours = TrimtabAssignor(heuristic, view=lambda: view, on_round=lambda _: None)
    return replace(_kafka_python(given, ours), again=lambda out: _again(given, out))


def kafka_python(given: Problem) -> Peer:
    return replace(
        _kafka_python(given, CooperativeStickyAssignor()),
        again=lambda out: _again(given, out, data=lambda _: b""),
    )


def _kafka_python(given: Problem, assignor: Any) -> Peer:
    cluster = Cluster(given)

    def ready(raw: Mapping[str, bytes]) -> list[Any]:
        decode = ConsumerProtocolSubscription.decode
        return [SimpleNamespace(member_id=m, metadata=decode(d)) for m, d in raw.items()]

    def assign(members: list[Any]) -> dict[str, Any]:
        return dict(assignor.assign(cluster, members))

    def wire(raw: Mapping[str, bytes]) -> Mapping[str, bytes]:
        given_out = assign(ready(raw))
        return {m: a if isinstance(a, bytes) else a.encode() for m, a in given_out.items()}

    return Peer(ready, assign, wire)


def aiokafka(given: Problem) -> Peer:
    """An eager assignor: what it hands out is the end of it."""
    cluster = Cluster(given)

    def ready(raw: Mapping[str, bytes]) -> dict[str, Any]:
        read = {m: ConsumerProtocolSubscription.decode(d) for m, d in raw.items()}
        return {
            m: ConsumerProtocolMemberMetadata(0, list(s.topics), s.user_data or b"") for m, s in read.items()
        }

    def assign(members: dict[str, Any]) -> dict[str, Any]:
        return dict(StickyPartitionAssignor.assign(cluster, members))

    def wire(raw: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {m: a.encode() for m, a in assign(ready(raw)).items()}

    return Peer(ready, assign, wire)


def _load(given: Problem) -> Load:
    universe = given.universe
    spans = zip(universe.topics, universe.start[:-1], universe.start[1:], strict=True)
    columns = {t: TopicMeasurements(universe.number[a:b], given.speed[a:b]) for t, a, b in spans}
    return Load(PartitionMeasurements(columns))


def _ours(told: bytes) -> bytes:
    placed = AssignmentUserData.decode(told)
    return MemberUserData(decision_fingerprint=placed.decision_fingerprint, promised=placed.promised).encode()


def _again(
    given: Problem, out: Mapping[str, bytes], data: Callable[[bytes], bytes] = _ours
) -> dict[str, bytes]:
    """Return what members send that own what they were just given."""
    sent: dict[str, bytes] = {}
    for member, encoded in out.items():
        told = ConsumerProtocolAssignment.decode(encoded).user_data or b""
        owned = encoded[2 : len(encoded) - 4 - len(told)]
        sent[member] = assign_problem.subscription(given, data(told), owned, 6)
    return sent


def owners(given: Problem, out: Mapping[str, bytes]) -> IntArray:
    """Return who was given each partition."""
    read = {m: ConsumerProtocolAssignment.decode(encoded) for m, encoded in out.items()}
    index = {t: i for i, t in enumerate(given.universe.topics)}
    owner = np.full(len(given.universe), UNASSIGNED, dtype=np.int32)
    for number, member in enumerate(given.ids):
        for topic, numbers in read[member].assigned_partitions:
            owner[given.universe.start[index[topic]] + np.array(numbers, dtype=np.int32)] = number
    return owner


def times(
    name: str, prepare: Callable[[], Any], call: Callable[[Any], Any], seconds: float
) -> tuple[dict[str, float], Any]:
    """Return medians and the last answer; what cannot be repeated within `seconds` counts cold."""
    cpu: list[float] = []
    wall: list[float] = []
    begun = perf_counter()
    while True:
        ready = prepare()
        gc.collect()
        start, start_cpu = perf_counter(), process_time()
        given_out = call(ready)
        cpu.append((process_time() - start_cpu) * 1000)
        wall.append((perf_counter() - start) * 1000)
        if perf_counter() - begun > seconds or len(cpu) > RUNS:
            break
    cpu, wall = (cpu[1:] or cpu), (wall[1:] or wall)
    medians = {f"{name}_cpu_ms": round(median(cpu), 2), f"{name}_wall_ms": round(median(wall), 2)}
    return medians, given_out


def measure(given: Problem, peer: Peer, raw: Mapping[str, bytes], seconds: float) -> dict[str, Any]:
    figures, out = _both("", peer, raw, seconds)
    if peer.again is not None:
        second, out = _both("second_", peer, peer.again(out), seconds)
        figures |= second
    return figures | assign_problem.quality(given, owners(given, out))


def _both(
    round_: str, peer: Peer, raw: Mapping[str, bytes], seconds: float
) -> tuple[dict[str, float], Mapping[str, bytes]]:
    alone, _ = times(f"{round_}assign", lambda: peer.ready(raw), peer.assign, seconds)
    wire, out = times(f"{round_}wire", lambda: raw, peer.wire, seconds)
    return alone | wire, out


def peak(peer: Peer, raw: Mapping[str, bytes]) -> float:
    """Return the most that one call from bytes to bytes allocates, in MB."""
    tracemalloc.start()
    peer.wire(raw)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(most / 1e6, 1)


def pick(name: str, given: Problem, raw: Sent) -> tuple[Peer, Mapping[str, bytes]]:
    """Return the peer of a name, and what members would send it."""
    kind, _, heuristic = name.partition("/")
    if kind == "kafka-python":
        return kafka_python(given), raw.cooperative
    if kind == "aiokafka":
        return aiokafka(given), raw.eager
    return {"trimtab": trimtab, "plugin": plugin}[kind](given, heuristic), raw.trimtab


def main() -> None:
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("peer", help="kafka-python, aiokafka, trimtab/NAME or plugin/NAME")
    arguments.add_argument("problem", type=Path)
    arguments.add_argument("--memory", action="store_true")
    arguments.add_argument("--seconds", type=float, default=1.5, help="to repeat one call")
    asked = arguments.parse_args()
    given, raw = assign_problem.read(asked.problem)
    peer, sent = pick(asked.peer, given, raw)
    found = measure(given, peer, sent, asked.seconds)
    if asked.memory:
        found["peak_mb"] = peak(peer, sent)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
