"""One history: a seed decides the group, its load, the faults and their times, and the schedule.

First all is calm and the sidecar starts the workers; then come faults; then they stop, and
the group must come to rest with every record in its table. The first violation ends the history.
"""

import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from history.anomalies import Anomaly
from simulation import sidecar as sidecars
from simulation.checks import Checks
from simulation.faults import FAULTS
from simulation.lake import Lake
from simulation.recording import Recorder
from simulation.worker import Worker, WorkerHost
from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.topics import PLAN_TOPIC
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.settings.settings_model import validate_settings
from trimtab.consumer_sdk.errors import BrokerUnreachableError, LakeUnavailableError
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.sidecar.decision.decision import ScalingAction
from trimtab.sidecar.model.observation import ReplicaInstance
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.testing.simulation import green
from trimtab.testing.simulation.broker import Group, Log, Watchers
from trimtab.testing.simulation.membership import Cluster
from trimtab.testing.simulation.network import Network

TOPIC: Final = "orders"
GROUP: Final = "lake"
RECORD: Final = 100.0
"""Bytes that a record counts for the sidecar."""

HEURISTICS: Final = ("sticky", "sticky", "bfd", "bfd", "mwf", "steady")
"""What a group may be placed by; the one that thinks longest comes up least."""

LOADS: Final = 4
"""How often producers change what they write."""

CALM: Final = 3.0
"""Seconds before the first fault."""

PATIENCE: Final = 240.0
"""Seconds in which the group must come to rest; replicas that died are replaced ever slower."""

RESTFUL: Final = 2.0
"""Seconds for which it must stay at rest then."""


REPEATED_COMMITS: Final[Mapping[str, Any]] = {
    "partitions": 6,
    "most_partitions": 6,
    "rate": 10.0,
    "heuristic": "mwf",
    "faults": 0,
    "fault_seconds": 45.0,
    "least": 2,
    "most": 4,
    "starts_at_release": True,
    "batch_age": 0.1,
    "loads": 30,
}
"""Shape of a history in which next owners commit while a former one's commits may still arrive."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Parameters of a history; seconds, records/s, partitions, replicas."""

    partitions: int
    most_partitions: int
    rate: float
    heuristic: str
    split: bool
    faults: int
    fault_seconds: float
    least: int = 1
    most: int = 4
    session_timeout: float = 3.0
    poll_interval: float = 6.0
    heartbeat: float = 0.5
    starts_at_release: bool = False
    batch_age: float = 1.0
    loads: int = LOADS

    @classmethod
    def of(cls, rng: random.Random) -> "Shape":
        """Draw one."""
        partitions = rng.randint(1, 6)
        return cls(
            partitions=partitions,
            most_partitions=partitions + rng.choice((0, 2)),
            rate=rng.uniform(5.0, 30.0),
            heuristic=rng.choice(HEURISTICS),
            split=rng.random() < 0.3,
            faults=rng.randint(2, 16),
            fault_seconds=rng.uniform(5.0, 12.0),
            least=rng.randint(1, 2),
            most=rng.randint(3, 4),
        )


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a history; `wrong` is None without a violation."""

    seed: int
    wrong: str | None
    anomalies: tuple[Anomaly, ...]
    trace: tuple[str, ...]
    faults: int
    records: int
    handovers: int
    commits: int
    gaps: int
    generations: int
    seconds: float
    events: int


class _TraceHandler(logging.Handler):
    """Writes the product's log into the trace."""

    def __init__(self, history: "History") -> None:
        super().__init__()
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        self._history.trace_event(record.getMessage(), green.current_name())


@dataclass(slots=True)
class History:
    """State of a running history."""

    seed: int
    tracing: bool = False
    repeats_commits: bool = False
    topic: str = TOPIC
    hub: green.Hub = field(init=False)
    rng: random.Random = field(init=False)
    shape: Shape = field(init=False)
    log: Log = field(init=False)
    network: Network = field(init=False)
    group: Group = field(init=False)
    cluster: Cluster = field(init=False)
    lake: Lake = field(init=False)
    checks: Checks = field(init=False)
    control: list[sidecars.Record] = field(default_factory=list[sidecars.Record])
    workers: dict[str, Worker] = field(default_factory=dict[str, Worker])
    sidecar: green.Process | None = None
    rate: float = 0.0
    deaths_left: int = 4
    broken: int = 0
    wrong: str | None = None
    trace: list[str] = field(default_factory=list[str])
    _given: int = 0
    _started: dict[str, float] = field(default_factory=dict[str, float])
    _verdict: ScalingAction | None = None
    _weights: dict[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])

    def __post_init__(self) -> None:
        self.hub = green.Hub(self.seed)
        self.rng = random.Random(self.seed ^ 0x5EED)  # noqa: S311 - chance that can be repeated
        # by the number of the history: a draw would change all of them
        self.shape = replace(Shape.of(self.rng), starts_at_release=self.seed % 2 == 1)
        if self.repeats_commits:
            self.shape = replace(self.shape, **REPEATED_COMMITS)
        self.rate = self.shape.rate
        self.network = Network(self.hub)
        self.lake = Lake(self.hub)
        self.log = Log(read_committed=self.seed % 4 != 0)
        self.log.grow(TOPIC, self.shape.partitions)
        self.checks = Checks(
            *(GROUP, f"lake.{TOPIC}", self.log, self.workers, self._wanted, self.fail, self._mark),
            recorder=Recorder(self.hub, self.log),
        )
        self.lake.on_commit, self.lake.on_missing = self.checks.added, self.checks.missing
        self.lake.on_changes = self.checks.landed
        watchers = Watchers(self.checks.assigned, self.checks.committed, self._trace_group)
        self.group = Group(self.hub, self.shape.session_timeout, self.shape.poll_interval, watchers)
        self.cluster = Cluster(self.hub, self.network, self.group, self.log)

    # -- the course -------------------------------------------------------------------------------

    def run(self) -> Result:
        """Run to the end, or to the first thing that is wrong."""
        handler = _TraceHandler(self)
        loggers = [logging.getLogger(name) for name in ("trimtab",)]
        if self.tracing:
            for logger in loggers:
                logger.setLevel(logging.INFO)
                logger.addHandler(handler)
        try:
            self._run()
        finally:
            for worker in self.workers.values():
                worker.process.end()
            if self.sidecar is not None:
                self.sidecar.end()
            self.hub.unwind()
            for logger in loggers:
                logger.removeHandler(handler)
        return self._result()

    def _run(self) -> None:
        shape = self.shape
        self.trace_event(f"{shape}")
        self.start_sidecar()
        self._produce()
        for _ in range(shape.loads):
            self.hub.at(CALM + self.rng.uniform(0.0, shape.fault_seconds), self._change_load)
        if self.repeats_commits:
            self.hub.at(CALM, self._repeat_commits)
        for _ in range(shape.faults):
            self.hub.at(CALM + self.rng.uniform(0.0, shape.fault_seconds), self._break)
        if not self.hub.run(CALM + shape.fault_seconds):
            return
        self._heal()
        deadline = self.hub.now + PATIENCE
        rested = 0.0
        while rested < RESTFUL:
            generation = self.group.generation
            if not self.hub.run(self.hub.now + 1.0):
                return
            calm = not self._unrest() and generation == self.group.generation
            rested = rested + 1.0 if calm else 0.0
            if self.hub.now > deadline:
                self.fail("no rest: " + "; ".join(self._unrest() or ["it rebalances for ever"]))
                return
        self.checks.incomplete(self.lake.tables.values())

    def _change_load(self) -> None:
        self.rate = self.rng.choice((0.2, 0.5, 1.0, 1.5, 2.5)) * self.shape.rate
        self.trace_event(f"producers write {self.rate:.0f} records/s", "load")

    def _break(self) -> None:
        description = self.rng.choice(FAULTS)(self)
        if description is not None:
            self.broken += 1
            self.trace_event(description, "fault")

    def _repeat_commits(self) -> None:
        self.network.doubled, self.network.longest_delay = 0.3, 5.0

    def _heal(self) -> None:
        self.trace_event("faults stop", "fault")
        self.network.heal()
        self.lake.trouble.heal()
        self.rate = 0.0
        for worker in self.workers.values():
            worker.crash_at, worker.stall = "", 0.0

    def _unrest(self) -> list[str]:
        """Return the violations at rest."""
        found = [*self.checks.unread(), *self.checks.unowned(), *self.checks.misplaced(self.plan())]
        plan, alive = self.plan(), [w for w in self.workers.values() if w.alive]
        if plan is None or len(alive) != plan.replicas or plan.draining:
            found.append(f"{len(alive)} replicas live, the plan is {plan}")
        if self._verdict is not ScalingAction.HOLD:
            found.append(f"the sidecar is about to {self._verdict}")
        return found

    def _result(self) -> Result:
        found = self.checks.find_anomalies(self.lake.tables.values(), settled=self.wrong is None)
        if found:
            self.fail(str(found[0]))
        return Result(
            self.seed,
            self.wrong,
            tuple(found),
            tuple(self.trace),
            self.broken,
            self.log.count,
            self.checks.handovers,
            self.checks.commits,
            self.checks.gaps,
            self.group.generation,
            self.hub.now,
            self.hub.events,
        )

    @property
    def session_timeout(self) -> float:
        """Session timeout of the group, for its faults."""
        return self.shape.session_timeout

    @property
    def poll_interval(self) -> float:
        """Longest time between two polls, for its faults."""
        return self.shape.poll_interval

    # -- events and violations ----------------------------------------------------------------------

    @property
    def keyed(self) -> bool:
        """Whether the records are changes by key (`lake.write: upsert`)."""
        return self.seed % 3 == 0 and not self.shape.split

    def trace_event(self, text: str, source: str = "world") -> None:
        """Write a line of the trace."""
        if self.tracing:
            self.trace.append(f"{self.hub.now:8.3f}  {source:10}  {text}")

    def fail(self, what: str) -> None:
        """End the history with a violation."""
        if self.wrong is None:
            self.wrong = f"at {self.hub.now:.3f} s: {what}"
            self.trace_event(f"WRONG: {what}")
            self.hub.stop()

    def _trace_group(self, text: str) -> None:
        self.trace_event(f"generation {self.group.generation}: {text}", "group")

    def _wanted(self, table: str, value: bytes) -> bool:
        if not self.shape.split:
            return True
        return (int(value) % 3 == 0) == table.endswith("thirds")

    def _mark(self, partition: TopicPartition) -> int | None:
        content = self.lake.tables.get(f"lake.{TOPIC}")
        return None if content is None else content.marks.next_offset(GROUP, partition)

    # -- producers --------------------------------------------------------------------------------

    def _produce(self) -> None:
        pause = self.rng.uniform(0.4, 1.2)
        partitions = sorted(self.log.records)
        for partition in partitions:
            self._weights.setdefault(partition, self.rng.uniform(0.2, 2.0))
        weights = [self._weights[p] for p in partitions]
        for partition in self.rng.choices(partitions, weights, k=round(self.rate * pause)):
            self.log.append(partition, after_aborted=self.rng.random() < 0.05)
        self.hub.at(pause, self._produce)

    def write_rates(self) -> Mapping[TopicPartition, PartitionLoad]:
        """Return the measurements of a perfect monitor; sometimes none."""
        partitions = sorted(self.log.records)
        total = sum(self._weights.get(p, 1.0) for p in partitions)
        known = self.hub.rng.random() > 0.02
        write_rates: dict[TopicPartition, PartitionLoad] = {}
        for partition in partitions:
            rate = self.rate * RECORD * self._weights.get(partition, 1.0) / total
            reached = self.group.offsets.get(partition, (0, ""))[0]
            behind = self.log.ends[partition] - max(reached, self.log.lows[partition])
            write_rates[partition] = PartitionLoad(
                bytes_per_s=rate if known else None, backlog_bytes=behind * RECORD, backlog_records=behind
            )
        return write_rates

    # -- processes --------------------------------------------------------------------------------

    def any_worker(self) -> Worker | None:
        """Return a random live worker."""
        alive = [worker for worker in self.workers.values() if worker.alive]
        return self.rng.choice(alive) if alive else None

    def start_sidecar(self) -> None:
        """Start a sidecar without any state."""
        process = self.sidecar = green.Process(self.hub, "sidecar")
        process.on_death = self._died(process)
        settings = sidecar_settings(self.shape.least, self.shape.most, self.shape.heuristic)
        parts = (
            sidecars.Watch(self.cluster, self.write_rates),
            sidecars.Board(self.cluster, self.control),
            sidecars.Target(self._replicas, self._begin, self._stop),
        )
        clock = green.Clock(self.hub)
        process.start(lambda: sidecars.run(settings, parts, self._reported, clock), main=True)

    def plan(self) -> GroupPlan | None:
        """Return the plan in force."""
        plans = [r for r in self.control if r.name == PLAN_TOPIC]
        return GroupPlan.decode(plans[-1].content) if plans else None

    def _reported(self, report: IterationReport) -> None:
        self._verdict = report.decision.action
        plan = report.decision.plan
        if plan is not None and not self.shape.least <= plan.replicas <= self.shape.most:
            self.fail(f"the plan wants {plan.replicas} replicas: {report.decision.format_line()}")
        if (
            plan is not None
            and plan.target is not None
            and not set(plan.target.consumers) <= set(self.workers)
        ):
            self.fail(f"the target names {plan.target.consumers}, started were {list(self.workers)}")

    def _replicas(self) -> tuple[ReplicaInstance, ...]:
        alive = sorted(worker.name for worker in self.workers.values() if worker.alive)
        return tuple(ReplicaInstance(n, alive=True, started_at=self._started[n]) for n in alive)

    def _begin(self) -> str:
        self._given += 1
        name = f"worker-{self._given}"
        process = green.Process(self.hub, name)
        process.on_death = self._died(process)
        worker = self.workers[name] = Worker(name, process, self.checks)
        process.host = WorkerHost(self.cluster, self.control, worker=worker, keyed=self.keyed)
        self._started[name] = green.EPOCH + self.hub.now
        config = worker_config(name, self.shape)
        self.hub.at(
            self.rng.uniform(0.1, 1.5),
            lambda: process.start(lambda: worker.run(config, self.lake), main=True),
        )
        alive = sum(w.alive and not w.stop.is_set() for w in self.workers.values())
        self.trace_event(f"{name} starts, {alive} live")
        if alive > self.shape.most:
            self.fail(f"{alive} replicas live, {self.shape.most} are allowed")
        return name

    def _stop(self, name: str) -> None:
        worker = self.workers[name]
        self.trace_event(f"{name} is stopped by the sidecar")
        if worker.alive and worker.owned() and worker.reads():
            owned = ", ".join(map(str, sorted(worker.owned())))
            self.fail(f"the sidecar stopped {name}, which owns {owned}")
        worker.stop.set()

    def _died(self, process: green.Process) -> Any:
        def died(error: BaseException | None) -> None:
            self.trace_event("ends" if error is None else f"ends with {error!r}", process.name)
            passing = isinstance(error, LakeUnavailableError | BrokerUnreachableError)
            if error is not None and not passing:
                self.fail(f"{process.name} ended with {error!r}")

        return died


@cache
def sidecar_settings(least: int, most: int, heuristic: str) -> SidecarSettings:
    """Return the sidecar's settings: short times, so that a history holds many decisions."""
    given = {
        "bootstrap": "simulated:9092",
        "group": GROUP,
        "topics": TOPIC,
        "capacity": "800 B/s",
        "heuristic": heuristic,
        "interval": "1.8 s",
        "window": "4 s",
        "min": least,
        "max": most,
        "scale-down-policies": 2,
        "scale-down-stabilization-window": "3 s",
        "cooldown": "2 s",
        "drain-retry": "5 s",
        "startup-timeout": "8 s",
        "target": "process",
        "worker-command": ["simulated", "{instance}"],
        "state-dir": "unused",
    }
    return validate_settings(SidecarSettings, given)


@cache
def worker_config(name: str, shape: Shape) -> ingest.IngestSettings:
    """Return a worker's settings."""
    given: dict[str, Any] = {
        "bootstrap.servers": "simulated:9092",
        "group.id": GROUP,
        "topics": [TOPIC],
        "trimtab.instance": name,
        "trimtab.heuristic": shape.heuristic,
        "session.timeout.ms": shape.session_timeout * 1000,
        "max.poll.interval.ms": shape.poll_interval * 1000,
        "heartbeat.interval.ms": shape.heartbeat * 1000,
        "trimtab.start.at.release": shape.starts_at_release,
        "lake.warehouse": "simulated",
        "lake.flush.timeout": "3 s",
        "batch.bytes": "3 kB",
        "batch.max.age": f"{shape.batch_age} s",
    }
    if shape.split:
        given["lake.transform"] = "simulation.lake:split"
    return ingest.parse_ingest_settings(given)


def run(seed: int, *, tracing: bool = False, repeats_commits: bool = False) -> Result:
    """Run the history of a seed; `seams.simulated` must be in force.

    With `repeats_commits` it has many handovers, and commits that are repeated or take effect late.
    """
    return History(seed, tracing, repeats_commits).run()
