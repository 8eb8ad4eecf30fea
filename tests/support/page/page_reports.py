"""Reports of a made-up group, for the page's tests: as many consumers and partitions as asked."""

import random

from trimtab.assignor.model import Move, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.measurement.handover_time import PartitionMove
from trimtab.sidecar.model.observation import GroupState, ObservedMember
from trimtab.sidecar.records.iteration_report import IterationReport

CAPACITY = 1e6
HEADROOM = 0.8
START = 1.7e9
SCALED_EVERY = 20  # iterations
MAX_REPLICAS = 30
PLANNED = 0.9  # of a moved load: it was less when the move was planned
WEIGHT = 1.02  # of a load, by its rate: it also catches up


class ReportSource:
    """Iterations of a group, 10 s apart, whose loads wander and whose consumers change now and then."""

    def __init__(
        self, partitions: int, consumers: int, topic: str = "orders", client: str = "worker"
    ) -> None:
        self._random = random.Random(1)  # noqa: S311 - a test's stream
        self._partitions = [TopicPartition(topic, n) for n in range(partitions)]
        self._loads = [self._random.uniform(0.2, 1.6) * CAPACITY * 0.6 for _ in self._partitions]
        self._client = client
        self._consumers = consumers
        self._owner = {p: n % consumers for n, p in enumerate(self._partitions)}
        self._scale = consumers / partitions
        self._planned: tuple[PartitionMove, ...] = ()  # moves, which are carried out by the next iteration
        self._number = 0

    def next_report(self, *, reason: str = "its consumer was too full") -> IterationReport:
        """Return the next iteration; in every `SCALED_EVERY`th a consumer starts, and owns nothing yet."""
        self._number += 1
        is_scaled = self._number % SCALED_EVERY == 0
        self._carried_out, observed = dict(self._owner), self._planned
        self._planned = moves = self._scale_up() if is_scaled else ()
        self._loads = [max(1.0, load * self._random.uniform(0.95, 1.06)) for load in self._loads]
        self._fit_loads()
        loads = {p: self._measure(load) for p, load in zip(self._partitions, self._loads, strict=True)}
        expected = tuple(
            Move(m.partition, m.source, m.target, loads[m.partition].weight or 0.0, reason)
            for m in moves[:20]
        )
        metrics = DecisionMetrics(
            write_rate=sum(load.bytes_per_s or 0 for load in loads.values()),
            required_rate=sum(load.weight or 0 for load in loads.values()),
            backlog_bytes=sum(load.backlog_bytes or 0 for load in loads.values()),
            overdue_backlog_bytes=3e6 if self._number % SCALED_EVERY > 15 else 0.0,
            partitions=len(loads), running_replicas=self._consumers, planned_replicas=self._consumers,
            desired_replicas=self._consumers + (self._number % SCALED_EVERY > 15),
            recommended_replicas=self._consumers + (self._number % SCALED_EVERY > 12),
            max_fill=self._find_fullest(), moves=len(moves), planned_fill=0.8 if moves else None,
            r_score=PLANNED * sum(loads[m.partition].weight or 0.0 for m in moves) / CAPACITY,
        )  # fmt: skip
        action = ScalingAction.SCALE_UP if is_scaled else ScalingAction.HOLD
        reasons = (f"{self._consumers} wanted: the load needs them", f"max is {MAX_REPLICAS}")
        return IterationReport(
            time=START + 10 * self._number,
            decision=ScalingDecision(action, reasons, metrics, expected_moves=expected),
            write_rates=loads,
            epoch=self._number // SCALED_EVERY,
            plan=self._build_plan(),
            group_state=GroupState.STABLE,
            leader="host-1 (pid 7)",
            is_group_known=True,
            decision_seconds=0.01,
            iteration_seconds=0.2,
            handovers={m.partition: 0.09 + 0.01 * n for n, m in enumerate(observed)},
            members=self._list_members(),
            observed_moves=observed,
            capacity=CAPACITY,
        )

    def _fit_loads(self) -> None:
        """Scale the loads to the report's replicas: from the 13th iteration on one more is needed."""
        phase = self._number % SCALED_EVERY / SCALED_EVERY
        required = HEADROOM * CAPACITY * (self._consumers - 0.5 + 0.8 * phase)
        factor = required / (sum(self._loads) * self._scale * WEIGHT)
        self._loads = [load * factor for load in self._loads]

    def _build_plan(self) -> GroupPlan:
        epoch = self._number // SCALED_EVERY
        return GroupPlan(
            "lake", epoch, START + 10 * self._number, self._consumers, "steady", CAPACITY, HEADROOM
        )

    def _measure(self, load: float) -> PartitionLoad:
        rate = load * self._scale
        return PartitionLoad(rate, rate / 100, rate * 3, int(rate / 30), rate * WEIGHT)

    def _find_fullest(self) -> float:
        sums = [0.0] * self._consumers
        for partition, load in zip(self._partitions, self._loads, strict=True):
            sums[self._owner[partition]] += load * self._scale * WEIGHT
        return max(sums) / CAPACITY

    def _scale_up(self) -> tuple[PartitionMove, ...]:
        new = self._consumers
        self._consumers += 1
        moved = [
            self._take_from_fullest(new) for _ in range(max(1, len(self._partitions) // self._consumers))
        ]
        return tuple(PartitionMove(p, self._name(source), self._name(new)) for p, source in sorted(moved))

    def _take_from_fullest(self, target: int) -> tuple[TopicPartition, int]:
        sums = dict.fromkeys(range(self._consumers - 1), 0.0)
        for partition, load in zip(self._partitions, self._loads, strict=True):
            if self._owner[partition] != target:
                sums[self._owner[partition]] += load
        source = max(sums, key=sums.__getitem__)
        partition = next(p for p in self._partitions if self._owner[p] == source)
        self._owner[partition] = target
        return partition, source

    def _name(self, number: int) -> str:
        return f"{self._client}-{number}"

    def _list_members(self) -> tuple[ObservedMember, ...]:
        owned: dict[int, set[TopicPartition]] = {number: set() for number in range(self._consumers)}
        for partition, number in self._carried_out.items():
            owned[number].add(partition)
        return tuple(ObservedMember(f"id-{n}", self._name(n), frozenset(ps)) for n, ps in owned.items())
