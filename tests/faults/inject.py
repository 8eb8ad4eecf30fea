"""Injects each kind of fault. A fault waits for a target."""

import os
import random
import signal
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaException

from faults import suspended_clock, wall_clock
from faults.broker import PARTITIONS, Broker
from faults.rest_catalog import RestCatalog
from faults.schedule import END, FLUSH, MEMBER, UNWRITABLE, Fault
from faults.settings import qualified_table
from faults.store_faults import StoreInjector
from faults.supervisor import Worker, WorkerSupervisor
from faults.traffic import Traffic
from faults.transactions import Transactions
from object_store.rig import ObjectStoreRig
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk import Consumer

TARGET_SECONDS: Final = 60.0  # until a target exists
OTHERS_SECONDS: Final = 120.0  # within which another topic is written: it may need a new consumer
CRASH_SECONDS: Final = 12.0  # within which an armed crash point must be reached
TICK: Final = 0.05
FILLER: Final = "filler"
MOST_PARTITIONS: Final = PARTITIONS + 3
VISITOR: Final = {"trimtab.instance": "visitor", "log_level": 0}
DEADLY: Final = frozenset({"kill", "jvm", "stop", FLUSH, MEMBER, END})
"""Kinds that cost a consumer for a while: they wait until there are two."""


@dataclass(frozen=True, slots=True)
class World:
    """Targets of faults; file systems that may be filled have none else's files."""

    broker: Broker
    supervisor: WorkerSupervisor
    warehouse: Path
    broker_data: Path
    consumer: dict[str, Any]
    topics: str
    count_rows: Callable[[str], int]  # of a topic's table
    catalog: RestCatalog | None = None
    object_store: ObjectStoreRig | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The topic of a round and its producers, and further topics that were written meanwhile."""

    topic: str
    traffic: Traffic
    transactions: Transactions
    others: list[tuple[str, Traffic]] = field(default_factory=list[tuple[str, Traffic]])


class Injector:
    """Injects faults, each on the calling thread."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pause = Event()
        self._disk = Lock()
        self._partitions = Lock()
        self._rights = Lock()
        self._compaction = Lock()
        self._unwritable = Lock()
        self.load: Load | None = None
        self._visit = Lock()
        self._kinds: dict[str, Callable[[Fault], str]] = {
            "freeze": self._freeze,
            "freeze-jvm": self._freeze_jvm,
            "suspend": self._suspend,
            "cut": self._cut,
            "reset": self._reset,
            "catalog": self._lock_catalog,
            "catalog-answer": self._lose_answers,
            "broker-disk": self._fill_broker_disk,
            "producer": self._kill_producer,
            "partitions": self._add_partitions,
            "topic": self._delete_topic,
            "acl": self._take_right,
            "disk": self._fill_disk,
            "clock": self._jump,
            "clocks-apart": self._set_clocks_apart,
            "visitor": self._visitor,
            "kill": self._kill,
            "jvm": self._kill_jvm,
            "stop": self._stop,
            "broker": self._kill_broker,
            "brokers": self._kill_broker,
            "sidecar": self._kill_sidecar,
            "compact": self._compact,
            "schema": self._change_schema,
            UNWRITABLE: self._refuse_rows,
            FLUSH: self._crash,
            MEMBER: self._crash_in_rebalance,
            END: self._crash_at_end,
            **(StoreInjector(world.object_store).kinds() if world.object_store else {}),
        }

    def apply(self, fault: Fault) -> str:
        """Inject a fault and wait for its end; return its target, "" without one."""
        return self._kinds[fault.kind](fault)

    # -- consumers --------------------------------------------------------------------------------

    def _freeze(self, fault: Fault) -> str:
        worker = self._target(fault)
        if worker is None:
            return ""
        whole = fault.target % 2 == 0
        hit = worker.signal(signal.SIGSTOP, whole=whole)
        self._pause.wait(fault.seconds)
        worker.signal(signal.SIGCONT, whole=whole)
        return worker.name if hit else ""

    def _suspend(self, fault: Fault) -> str:
        """Stop all processes of a consumer, and its CLOCK_MONOTONIC."""
        worker = self._target(fault)
        if worker is None:
            return ""
        hit = worker.signal(signal.SIGSTOP, whole=True)
        since = monotonic()
        self._pause.wait(fault.seconds)
        suspended_clock.add(worker.suspended, monotonic() - since)
        worker.signal(signal.SIGCONT, whole=True)
        return worker.name if hit else ""

    def _freeze_jvm(self, fault: Fault) -> str:
        worker = self._target(fault)
        jvm = worker and worker.jvm
        if worker is None or jvm is None:
            return ""
        with suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGSTOP)
            self._pause.wait(fault.seconds)
            os.kill(jvm, signal.SIGCONT)
        return worker.name

    def _kill(self, fault: Fault) -> str:
        worker = self._target(fault)
        hit = worker is not None and worker.signal(signal.SIGKILL, whole=fault.target % 2 == 0)
        return self._gone(worker) if hit else ""

    def _kill_jvm(self, fault: Fault) -> str:
        worker = self._target(fault)
        jvm = worker and worker.jvm
        if jvm is None:
            return ""
        with suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGKILL)
        return self._gone(worker)

    def _stop(self, fault: Fault) -> str:
        worker = self._target(fault)
        hit = worker is not None and worker.signal(signal.SIGTERM)
        return self._gone(worker) if hit else ""

    def _jump(self, fault: Fault) -> str:
        """Move a consumer's wall clock, and later back again."""
        worker = self._target(fault)
        if worker is None:
            return ""
        hit = worker.orders.send("clock", str(fault.seconds))
        self._pause.wait(fault.target % 5)
        worker.orders.send("clock", str(-fault.seconds))
        return worker.name if hit else ""

    def _set_clocks_apart(self, fault: Fault) -> str:
        """Set the wall clock of a consumer and its JVM; it stays so."""
        worker = self._target(fault)
        if worker is None:
            return ""
        change = fault.seconds - wall_clock.read_ahead(worker.wall_clock)
        wall_clock.set_ahead(worker.wall_clock, fault.seconds)
        return worker.name if worker.orders.send("clock", str(change)) else ""

    # -- crash points -----------------------------------------------------------------------------

    def _crash(self, fault: Fault) -> str:
        return self._armed(fault, lambda worker: None)  # noqa: ARG005 - traffic brings flushes

    def _crash_in_rebalance(self, fault: Fault) -> str:
        """Arm a step of a rebalance and start one: a drain revokes, a visitor's exit assigns."""
        if fault.step in ("assigning", "assigned"):
            return self._armed(fault, lambda worker: self._visit_for(1.0))  # noqa: ARG005
        return self._armed(fault, lambda worker: worker.orders.send("drain"))

    def _crash_at_end(self, fault: Fault) -> str:
        return self._armed(fault, lambda worker: worker.signal(signal.SIGTERM))

    def _armed(self, fault: Fault, start: Callable[[Worker], object]) -> str:
        worker = self._target(fault)
        if worker is None or not worker.orders.send("crash", fault.step):
            return ""
        start(worker)
        if self._await(lambda: not worker.alive, CRASH_SECONDS):
            return worker.name
        worker.orders.send("crash")
        if fault.step in ("revoking", "flushed", "revoked"):
            worker.signal(signal.SIGKILL)  # drained, it would read nothing any more
        return ""

    # -- what the consumers need ------------------------------------------------------------------

    def _cut(self, fault: Fault) -> str:
        worker, network = self._target(fault), self._world.broker.network
        if worker is None:
            return ""
        for link in self._links(worker):
            network.cut(link)
        self._pause.wait(fault.seconds)
        for link in self._links(worker):
            network.restore(link)
        return worker.name

    def _reset(self, fault: Fault) -> str:
        worker = self._target(fault)
        if worker is None:
            return ""
        for link in self._links(worker):
            self._world.broker.network.reset(link)
        return worker.name

    def _links(self, worker: Worker) -> range:
        broker = self._world.broker
        return broker.link_numbers(int(worker.name.rpartition("-")[2]) % broker.links)

    def _kill_broker(self, fault: Fault) -> str:
        self._world.broker.kill(fault.seconds)
        return "broker"

    def _take_right(self, fault: Fault) -> str:
        with self._rights:
            self._world.broker.take_right(fault.target, fault.seconds, "fire")
        return "acl"

    def _kill_producer(self, fault: Fault) -> str:
        """Kill the transactional producer: its open transaction is aborted."""
        del fault
        return "producer" if self.load and self.load.transactions.kill() else ""

    def _add_partitions(self, fault: Fault) -> str:
        del fault
        load = self.load
        with self._partitions:
            if load is None or load.traffic.partitions >= MOST_PARTITIONS:
                return ""
            self._world.broker.grow(load.topic, load.traffic.partitions + 1)
            load.traffic.partitions += 1
        return load.topic

    def _delete_topic(self, fault: Fault) -> str:
        """Make a further topic of the group, and delete it while it is written and read."""
        if self.load is None:
            return ""
        topic, traffic = self._make_topic(self.load, fault)
        self._pause.wait(fault.seconds)
        self._world.broker.drop(topic)
        traffic.abandon()
        return topic

    def _make_topic(self, load: Load, fault: Fault) -> tuple[str, Traffic]:
        """Make a further topic of the group, and write it."""
        topic = f"{load.topic}-{fault.target}-{int(fault.at * 1000)}"
        partitions = min(2, load.traffic.partitions)
        self._world.broker.make(topic, partitions)
        rng = random.Random(fault.target)  # noqa: S311 - it must replay
        return topic, Traffic(self._world.broker.bootstrap, topic, partitions, rng, load.traffic.write)

    def _lose_answers(self, fault: Fault) -> str:
        """Let the catalog answer 503 to commits that it has made."""
        catalog = self._world.catalog
        if catalog is None:
            return ""
        before = catalog.lost
        with catalog.losing_answers():
            hit = self._await(lambda: catalog.lost > before, TARGET_SECONDS)
            self._pause.wait(fault.seconds)
        return "catalog" if hit else ""

    def _kill_sidecar(self, fault: Fault) -> str:
        del fault
        return "sidecar" if self._world.supervisor.kill_sidecar() else ""

    def _compact(self, fault: Fault) -> str:
        """Rewrite the table's small files, which takes rows away from under the writers' positions."""
        del fault
        load = self.load
        if load is None:
            return ""
        with self._compaction:
            return load.topic if self._world.supervisor.compact(qualified_table(load.topic)) else ""

    def _change_schema(self, fault: Fault) -> str:
        """Let the source write rows of the next schema, beside those of transactions, which keep theirs."""
        del fault
        load = self.load
        if load is None:
            return ""
        load.traffic.schema_version += 1
        return load.topic

    def _refuse_rows(self, fault: Fault) -> str:
        """Let the flushes of the topic's table fail at a step, until another topic's table has rows."""
        load = self.load
        if load is None or self._target(fault) is None:
            return ""
        with self._unwritable:
            workers = [worker for worker in self._world.supervisor.workers() if worker.ready]
            order = f"{qualified_table(load.topic)} {fault.step}"
            told = [worker.name for worker in workers if worker.orders.send("fail", order)]
            self._pause.wait(fault.seconds)
            other, traffic = self._make_topic(load, fault)
            if not self._await(lambda: self._world.count_rows(other) > 0, OTHERS_SECONDS):
                traffic.faults.append(f"{other} was not written while {load.topic} could not be")
            for worker in workers:
                worker.orders.send("fail")
            traffic.end()
            load.others.append((other, traffic))
        return " ".join(told)

    def _lock_catalog(self, fault: Fault) -> str:
        """Hold the write lock of the catalog's database."""
        file = self._world.warehouse / "catalog.db"
        if not file.exists():
            return ""
        with closing(sqlite3.connect(file, isolation_level=None, timeout=60)) as catalog:
            try:
                catalog.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:  # the disk is full
                return ""
            self._pause.wait(fault.seconds)
            catalog.execute("ROLLBACK")
        return "catalog"

    def _fill_disk(self, fault: Fault) -> str:
        with self._disk:
            self._fill_folder(self._world.warehouse, fault.seconds)
        return "disk"

    def _fill_broker_disk(self, fault: Fault) -> str:
        """Fill the brokers' disk: a broker that cannot write its log ends, and is restarted."""
        with self._disk:
            self._fill_folder(self._world.broker_data, fault.seconds)
            self._world.broker.kill(0.0)
        return "broker"

    def _fill_folder(self, folder: Path, seconds: float) -> None:
        file = folder / FILLER
        try:
            with file.open("wb", buffering=0) as filler:
                self._fill(filler.fileno(), seconds)
        finally:
            file.unlink(missing_ok=True)

    def _fill(self, file: int, seconds: float) -> None:
        """Fill the free space repeatedly: other processes free some meanwhile."""
        block, until = b"\0" * 65_536, monotonic() + seconds
        while monotonic() < until:
            with suppress(OSError):
                while os.write(file, block):
                    pass
            self._pause.wait(TICK)

    # -- another member ---------------------------------------------------------------------------

    def _visitor(self, fault: Fault) -> str:
        return "group" if self._visit_for(fault.seconds) else ""

    def _visit_for(self, seconds: float) -> bool:
        """Join the group, read nothing, and leave it: two rebalances."""
        with self._visit, ExitStack() as stack, suppress(KafkaException, TrimtabError):
            config = {**self._world.consumer, "bootstrap.servers": self._world.broker.bootstrap}
            visitor = stack.enter_context(Consumer(config | VISITOR))
            visitor.subscribe([self._world.topics])
            until = monotonic() + seconds
            while monotonic() < until:
                visitor.consume(0, TICK)
            return True
        return False

    # -- waiting ----------------------------------------------------------------------------------

    def _target(self, fault: Fault) -> Worker | None:
        """Wait until there are enough ready workers; return one."""
        enough = 1 + (fault.kind in DEADLY)
        found: list[Worker] = []

        def look() -> bool:
            found[:] = [worker for worker in self._world.supervisor.workers() if worker.ready]
            return len(found) >= enough

        self._await(look, TARGET_SECONDS)
        return found[fault.target % len(found)] if found else None

    def _gone(self, worker: Worker | None) -> str:
        """Wait for the end of a process; return its name, "" if it lives on."""
        assert worker is not None
        return worker.name if self._await(lambda: not worker.alive, TARGET_SECONDS) else ""

    def _await(self, condition: Callable[[], bool], seconds: float) -> bool:
        until = monotonic() + seconds
        while not condition():
            if monotonic() > until:
                return False
            self._pause.wait(TICK)
        return True
