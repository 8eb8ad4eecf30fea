"""One history of a group whose application is the user's own: a seed decides load, faults, schedule.

First all is calm; then workers are killed, frozen, cut off, started and stopped; then the faults end,
and the group must read and commit every record. What each worker handled, and when, is the result.
"""

import logging
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import TrimtabError
from trimtab.common.units import format_count
from trimtab.testing.simulation import faults, green
from trimtab.testing.simulation.broker import Group, Log, Watchers
from trimtab.testing.simulation.host import Host, ObservedConsumer
from trimtab.testing.simulation.membership import Cluster
from trimtab.testing.simulation.network import Network

TOPIC: Final = "simulated"
GROUP: Final = "simulated-group"
SESSION_TIMEOUT_S: Final = 3.0
POLL_INTERVAL_S: Final = 6.0
HEARTBEAT_INTERVAL_S: Final = 0.5
CALM_S: Final = 3.0  # before the first fault
MAX_CATCH_UP_S: Final = 180.0  # after the last fault
REST_CHECKS: Final = 2  # a second apart, that must find every record read
RESTART_DELAY_S: Final = (0.2, 2.0)  # of a worker that ended
PRODUCE_INTERVAL_S: Final = (0.3, 0.9)
MAX_DEATHS: Final = 4  # of one history

Worker = Callable[[ObservedConsumer, green.Event], None]
"""Loop of one process: reads with the consumer until the event is set."""

MakeRecord = Callable[[int, random.Random], tuple[bytes | None, bytes]]
"""Returns key and value of the record with a number."""


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Size of a history; records/s, seconds."""

    partitions: int
    workers: int
    rate: float
    faults: int
    fault_seconds: float

    @classmethod
    def draw(cls, rng: random.Random) -> "GroupShape":
        """Return a shape by chance."""
        return cls(
            partitions=rng.randint(1, 6),
            workers=rng.randint(1, 4),
            rate=rng.uniform(4.0, 20.0),
            faults=rng.randint(2, 10),
            fault_seconds=rng.uniform(4.0, 10.0),
        )


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Outcome of a history; `unread` and `failure` are empty if the group came to rest."""

    seed: int
    log: Log
    seconds: float
    rebalances: int
    faults: int
    unread: tuple[str, ...]
    failure: str
    trace: tuple[str, ...]


@dataclass(slots=True)
class GroupWorker:
    """One process of the group."""

    name: str
    process: green.Process
    stop: green.Event = field(default_factory=green.Event)
    stall: float = 0.0


@dataclass(slots=True)
class WorkerHost(Host):
    """Environment of a worker, which does not poll for `stall` seconds after its next poll."""

    worker: GroupWorker = field(kw_only=True)
    is_idle: bool = False  # its last poll found nothing: all earlier records are handled

    def has_read(self, partition: TopicPartition, end: int) -> bool:
        """Return whether the worker owns a partition and has handled its records up to the end."""
        if not (self.is_idle and self.worker.process.alive and self.consumer and self.fetcher):
            return False
        owns = partition in self.consumer.owned() and self.consumer.reads()
        return owns and self.fetcher.next_offset(partition) == end

    def handed(self, messages: Any) -> None:
        """Wait, if a fault asks for it."""
        self.is_idle = not messages
        seconds, self.worker.stall = self.worker.stall, 0.0
        if seconds:
            self.worker.process.hub.sleep(seconds)


@dataclass(slots=True)
class GroupHistory:
    """State of a running history; `seams.CONSUMER_SEAMS` must be in force."""

    seed: int
    run_worker: Worker
    make_record: MakeRecord
    config: dict[str, Any]
    tracing: bool = False
    hub: green.Hub = field(init=False)
    rng: random.Random = field(init=False)
    shape: GroupShape = field(init=False)
    network: Network = field(init=False)
    log: Log = field(init=False)
    group: Group = field(init=False)
    workers: list[GroupWorker] = field(default_factory=list[GroupWorker])
    wanted: int = 0
    deaths_left: int = MAX_DEATHS
    trace: list[str] = field(default_factory=list[str])
    failure: str = ""
    _cluster: Cluster = field(init=False)
    _faults: int = 0
    _rate: float = 0.0
    _healed: bool = False

    def __post_init__(self) -> None:
        self.hub = green.Hub(self.seed)
        self.rng = random.Random(self.seed ^ 0x5EED)  # noqa: S311 - chance that can be repeated
        self.shape = GroupShape.draw(self.rng)
        self.wanted, self._rate = self.shape.workers, self.shape.rate
        self.network, self.log = Network(self.hub), Log()
        self.log.grow(TOPIC, self.shape.partitions)
        self.group = Group(self.hub, SESSION_TIMEOUT_S, POLL_INTERVAL_S, Watchers(happened=self._trace_group))
        self._cluster = Cluster(self.hub, self.network, self.group, self.log)

    @property
    def session_timeout(self) -> float:
        """Session timeout of the group."""
        return SESSION_TIMEOUT_S

    @property
    def poll_interval(self) -> float:
        """Longest time between two polls."""
        return POLL_INTERVAL_S

    # -- the course -------------------------------------------------------------------------------

    def run(self) -> GroupResult:
        """Run to the end."""
        with self._logging():
            try:
                unread = self._run()
            finally:
                for worker in self.workers:
                    worker.process.end()
                self.hub.unwind()
        return GroupResult(
            self.seed,
            self.log,
            self.hub.now,
            self.group.generation,
            self._faults,
            tuple(unread),
            self.failure,
            tuple(self.trace),
        )

    def _run(self) -> list[str]:
        self.trace_event(f"{self.shape}")
        for _ in range(self.shape.workers):
            self._start_worker()
        self._produce()
        for _ in range(self.shape.faults):
            self.hub.at(CALM_S + self.rng.uniform(0.0, self.shape.fault_seconds), self._break)
        self.hub.run(CALM_S + self.shape.fault_seconds)
        self._heal()
        deadline = self.hub.now + MAX_CATCH_UP_S
        rested = 0
        while not self.failure and rested < REST_CHECKS:
            unread = self._list_unread()
            rested = 0 if unread else rested + 1
            if self.hub.now > deadline:
                return unread
            self.hub.run(self.hub.now + 1.0)
        return []

    def _break(self) -> None:
        description = self.rng.choice(GROUP_FAULTS)(self)
        if description is not None:
            self._faults += 1
            self.trace_event(description, "fault")

    def _heal(self) -> None:
        self.trace_event("faults stop", "fault")
        self._healed, self._rate = True, 0.0
        self.network.heal()
        for worker in self.workers:
            worker.stall = 0.0

    def _list_unread(self) -> list[str]:
        """Return the partitions whose records nobody has read to the end.

        A commit may stay behind: a request that the network repeats late sets offsets back.
        """
        hosts: list[WorkerHost] = [worker.process.host for worker in self.workers]
        return [
            f"{partition} is committed up to {self.group.offsets.get(partition, (0, ''))[0]} of {end}"
            for partition, end in self.log.ends.items()
            if not any(host.has_read(partition, end) for host in hosts)
        ]

    # -- producers --------------------------------------------------------------------------------

    def _produce(self) -> None:
        pause = self.rng.uniform(*PRODUCE_INTERVAL_S)
        for _ in range(round(self._rate * pause)):
            key, value = self.make_record(self.log.count, self.rng)
            partition = self.rng.randrange(self.shape.partitions)
            self.log.append_record(TopicPartition(TOPIC, partition), key, value)
        if not self._healed:
            self.hub.at(pause, self._produce)

    # -- processes --------------------------------------------------------------------------------

    def any_worker(self) -> GroupWorker | None:
        """Return a random live worker."""
        alive = [worker for worker in self.workers if worker.process.alive]
        return self.rng.choice(alive) if alive else None

    def scale(self, count: int) -> None:
        """Start or stop workers until there are `count`."""
        self.wanted = count
        alive = [w for w in self.workers if w.process.alive and not w.stop.is_set()]
        for worker in alive[count:]:
            worker.stop.set()
        for _ in range(count - len(alive)):
            self._start_worker()

    def _start_worker(self) -> None:
        name = f"worker-{len(self.workers) + 1}"
        process = green.Process(self.hub, name)
        worker = GroupWorker(name, process)
        process.host = WorkerHost(self._cluster, [], worker=worker)
        process.on_death = lambda error: self._replace(name, error)
        self.workers.append(worker)
        self.trace_event("starts", name)
        process.start(lambda: self._run_process(worker), main=True)

    def _run_process(self, worker: GroupWorker) -> None:
        config = {
            "bootstrap.servers": "simulated:9092",
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_TIMEOUT_S * 1000,
            "max.poll.interval.ms": POLL_INTERVAL_S * 1000,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_S * 1000,
            "trimtab.heuristic": "sticky",
            **self.config,
            "trimtab.instance": worker.name,
        }
        consumer = ObservedConsumer(config)
        consumer.subscribe([TOPIC])
        self.run_worker(consumer, worker.stop)
        consumer.close()

    def _replace(self, name: str, error: BaseException | None) -> None:
        """Restart a worker as a supervisor does, unless the group is to be smaller."""
        self.trace_event("ends" if error is None else f"ends with {error!r}", name)
        # what Kafka and the SDK raise ends a process as a kill does; an error of the handler ends the history
        if error is not None and not isinstance(error, KafkaException | TrimtabError):
            self.failure = f"{name} ended with {error!r}"
            self.hub.stop()
            return
        self.hub.at(self.rng.uniform(*RESTART_DELAY_S), lambda: self.scale(self.wanted))

    # -- the trace --------------------------------------------------------------------------------

    def trace_event(self, text: str, source: str = "world") -> None:
        """Write a line of the trace."""
        if self.tracing:
            self.trace.append(f"{self.hub.now:8.3f}  {source:10}  {text}")

    def _trace_group(self, text: str) -> None:
        self.trace_event(f"generation {self.group.generation}: {text}", "group")

    @contextmanager
    def _logging(self) -> Generator[None]:
        """Silence the thousands of log lines of a history's processes."""
        logger = logging.getLogger("trimtab")
        before = logger.disabled, logger.level
        logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            logger.disabled, level = before
            logger.setLevel(level)


GroupFault = Callable[[GroupHistory], str | None]
"""Breaks something and says what, or finds nothing to break."""


def _scale(at: GroupHistory) -> str | None:
    """Start or stop workers, as an autoscaler does."""
    count = at.rng.choice([n for n in range(1, 5) if n != at.wanted])
    at.scale(count)
    return format_count(count, "worker is wanted", "workers are wanted")


GROUP_FAULTS: Final[tuple[GroupFault, ...]] = (
    faults.kill,
    faults.kill,
    faults.freeze,
    faults.freeze,
    faults.cut,
    faults.stall,
    faults.brokers,
    faults.messages,
    faults.leave,
    _scale,
    _scale,
)
