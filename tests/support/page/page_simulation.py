"""Reports of a simulated group, for the page's pictures: the sidecar's own decisions on made-up write rates.

The closed loop is the one that what-if simulates, so that figures of the page which come from different
places have to agree.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from trimtab.assignor.analysis.simulation import SimulationSetup, parse_contender, run_simulation
from trimtab.assignor.analysis.simulation.contenders import BacklogReader, SimulatedDecision
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decision import ScalingDecision
from trimtab.sidecar.measurement.handover_time import PartitionMove
from trimtab.sidecar.model.observation import GroupState, Observation, ObservedMember
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.simulation import live_loop
from trimtab.sidecar.simulation.live_settings import LiveSettings

BEGIN: Final = 1.7e9
TICK_S: Final = 10.0
PAUSE_S: Final = 0.12  # of a moved partition
RECORD_BYTES: Final = 1000.0
BATCH_S: Final = 2.0  # of writes that are read, and not yet committed
BURST: Final = slice(40, 48)  # ticks in which almost twice as much is written
MAX_REPLICAS: Final = 8
Owners = Mapping[TopicPartition, str]


def make_stream(capacity: float, partitions: int = 24, ticks: int = 138) -> WriteRateStream:
    """Return write rates that grow by two consumers' load, with a burst in between."""
    random = np.random.default_rng(8)
    share = random.lognormal(0.0, 0.6, partitions)
    share = np.minimum(share / share.sum(), 0.09)
    total = capacity * np.linspace(2.7, 4.6, ticks)
    total[BURST] *= 1.9
    noise = random.uniform(0.97, 1.03, (ticks, partitions))
    names = tuple(TopicPartition("orders", n) for n in range(partitions))
    return WriteRateStream(names, total[:, np.newaxis] * share / share.sum() * noise)


class _ObservedSidecar:
    """The sidecar in the closed loop, as a source of decisions that keeps each report."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings
        self._owners: Owners = {}
        self.reports: list[IterationReport] = []

    def iter_decisions(self, stream: WriteRateStream, setup: SimulationSetup, lags: BacklogReader) -> Any:
        policy = self._settings.autoscaling_policy
        decide = live_loop.make_decision

        def observe(observation: Observation, *given: Any) -> Any:
            observation = replace(observation, write_rates=add_batches(observation.write_rates))
            decision, memory = decide(observation, *given)
            time = float(given[-1])
            self.reports.append(self._build_report(observation, decision, time))
            return decision, memory

        decisions = live_loop.iter_sidecar_decisions(policy, stream, setup, lags, LiveSettings(), begin=BEGIN)
        while True:
            with patch.object(live_loop, "make_decision", observe):
                found: SimulatedDecision | None = next(decisions, None)
            if found is None:
                return
            yield found

    def _build_report(
        self, observation: Observation, decision: ScalingDecision, time: float
    ) -> IterationReport:
        members = tuple(
            replace(m, id=shorten(m.id), instance=shorten(m.instance)) for m in observation.group.members
        )
        before, self._owners = self._owners, find_owners(members)
        moves = tuple(
            PartitionMove(p, before[p], owner)
            for p, owner in sorted(self._owners.items())
            if before.get(p, owner) != owner
        )
        plan = decision.plan or observation.plan
        return IterationReport(
            time=time,
            decision=rename_consumers(decision),
            write_rates=observation.write_rates,
            epoch=0 if plan is None else plan.epoch,
            plan=plan,
            group_state=GroupState.STABLE,
            leader="host-1 (pid 7)",
            is_group_known=True,
            decision_seconds=0.01,
            iteration_seconds=0.2,
            handovers={move.partition: PAUSE_S for move in moves},
            members=members,
            observed_moves=moves,
            capacity=self._settings.capacity,
        )


class SimulatedSource:
    """The reports of `simulate_reports`, one after the other."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._reports = simulate_reports(settings)
        self.length = len(self._reports)
        self._next = iter(self._reports)

    def next_report(self, *, reason: str = "") -> IterationReport:
        """Return the next iteration; its moves have their own reasons."""
        del reason
        return next(self._next)


def simulate_reports(settings: SidecarSettings) -> list[IterationReport]:
    """Return the reports of a sidecar with these settings, one for each tick of `make_stream`."""
    source = _ObservedSidecar(settings)
    placement = settings.autoscaling_policy.placement
    setup = SimulationSetup(
        capacity=placement.capacity, headroom=placement.headroom, tick=TICK_S, pause=PAUSE_S,
        late=settings.backlog_grace,
    )  # fmt: skip
    run_simulation(parse_contender("steady"), make_stream(placement.capacity), setup, source.iter_decisions)
    return source.reports


def add_batches(loads: Mapping[TopicPartition, PartitionLoad]) -> dict[TopicPartition, PartitionLoad]:
    """Return the loads with their records, of 1 kB each, and with those of the batch that is being read."""
    return {
        p: _add_batch(load, load.bytes_per_s or 0.0, load.backlog_bytes or 0.0) for p, load in loads.items()
    }


def _add_batch(load: PartitionLoad, rate: float, unread: float) -> PartitionLoad:
    backlog = unread + BATCH_S * rate
    records = {"records_per_s": rate / RECORD_BYTES, "backlog_records": int(backlog / RECORD_BYTES)}
    return replace(load, backlog_bytes=backlog, **records)


def find_owners(members: tuple[ObservedMember, ...]) -> Owners:
    """Return the owner of each partition."""
    return {p: member.instance for member in members for p in member.owned_partitions}


def shorten(text: str) -> str:
    """Return a text with "worker-3" for "consumer-00003"."""
    return re.sub(r"consumer-0*(\d+)", r"worker-\1", text)


def rename_consumers(decision: ScalingDecision) -> ScalingDecision:
    """Return the decision with short names in its texts and moves."""
    return replace(
        decision,
        reasons=tuple(map(shorten, decision.reasons)),
        replicas_to_stop=tuple(map(shorten, decision.replicas_to_stop)),
        expected_moves=tuple(
            replace(
                m, source=m.source and shorten(m.source), target=shorten(m.target), reason=shorten(m.reason)
            )
            for m in decision.expected_moves
        ),
    )
