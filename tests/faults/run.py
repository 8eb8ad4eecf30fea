"""A run: one setup, then rounds of faults, rest and check.

A round ends when every fault is over, every record is acknowledged, and the table has as many rows as
the broker has records. If no row is added for REST_SECONDS, the round is stuck, and missing records
count as lost.
"""

import json
import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any, Final, Self

from faults import settings, wall_clock
from faults.broker import Broker, read_numbers, read_with_kafka_python
from faults.changes import SCHEMAS, ChangedRow, Numbers, check_changes, count_differences, replay
from faults.check import (
    MAX_DESCRIPTIONS,
    Findings,
    Handed,
    abort_withdrawn,
    acknowledge,
    check,
    check_layout,
    find_rewritten,
    place_writes,
    record_number,
)
from faults.handed_log import read_logs
from faults.inject import Injector, Load, World
from faults.rest_catalog import RestCatalog
from faults.schedule import KINDS, Fault, Kind, draw
from faults.small_disk import mount_small_disk
from faults.supervisor import LEAST, WorkerSupervisor
from faults.tables import Tables, reader
from faults.traffic import Traffic
from faults.transactions import Transactions
from history import events
from history.anomalies import count_kinds, find_anomalies, longest_lag
from history.events import History, Write
from object_store.rig import ObjectStoreRig
from object_store.servers import CREDENTIALS
from support.lake.fake_registry import serve_registry
from trimtab.consumer_sdk.client.settings import CLASSIC_PROTOCOL

LINKS: Final = 5
BROKER_DISK: Final = "1g"
REST_SECONDS: Final = 180.0
GIVE_UP: Final = 3  # stuck rounds
MANY_COMPACTIONS: Final = 6  # of which one commits also on a busy machine, where some are killed
DISK: Final = "512m"
TICK: Final = 0.2
REST_TICK: Final = 1.0

ShowProgress = Callable[[int, str], None]
PrintLine = Callable[[str], None]
log = logging.getLogger("faults")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run."""

    faults: int
    seed: int
    round: int
    format: str
    stage: str = "auto"
    isolation: str = "read_committed"
    catalog: str = "embedded"
    brokers: int = 1
    protocol: str = CLASSIC_PROTOCOL
    only: tuple[str, ...] = ()
    keep: bool = False
    store: str = "disk"
    first: int = 0  # number of the first round
    write: str = "append"


@dataclass(slots=True)
class Tally:
    """Totals of all rounds."""

    faults: int = 0
    missed: int = 0  # drawn, but without a target
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    double_owners: int = 0
    anomalies: int = 0
    withdrawn: int = 0  # records of committed transactions that the broker gives to no client afterwards
    rewritten: int = 0  # records that the topic itself holds once more: the producer wrote them again
    stuck: int = 0
    compactions: int = 0  # commands: each was done, failed or was killed
    compactions_failed: int = 0
    compactions_killed: int = 0
    compactions_committed: int = 0  # commits in the tables' histories: a killed one may have made its own
    rounds: int = 0
    seconds: float = 0.0
    lag_seconds: float = 0.0  # longest, from an acknowledgement to the first poll
    kinds: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)  # of anomalies

    @property
    def good(self) -> bool:
        """Whether there is no violation, but at least one fault and one record."""
        bad = (self.lost, self.duplicated, self.wrong, self.double_owners, self.anomalies, self.stuck)
        unexplained = self.rewritten and not self.kinds["brokers"]  # a producer that lost no brokers
        problems = (*bad, unexplained, self.lacks_compactions)
        return not any(problems) and self.faults > 0 and self.records > 0

    @property
    def lacks_compactions(self) -> bool:
        """Whether none of many compactions was committed: nothing was tried beside one."""
        return self.compactions >= MANY_COMPACTIONS and not self.compactions_committed

    def add(self, found: Findings) -> None:
        self.records += found.records
        self.lost += found.lost
        self.duplicated += found.duplicated
        self.wrong += found.wrong
        self.double_owners += found.double_owners

    def note_compactions(self, ended: Counter[str], committed: int) -> None:
        """Take over the commands so far by how they ended, and add the commits of a round."""
        self.compactions = ended.total()
        self.compactions_failed, self.compactions_killed = ended["failed"], ended["killed"]
        self.compactions_committed += committed

    def add_history(self, history: History) -> list[str]:
        """Count a round's anomalies; return the first ones."""
        found = find_anomalies(history)
        self.anomalies += len(found)
        self.classes.update(count_kinds(found))
        self.lag_seconds = max(self.lag_seconds, longest_lag(history))
        return [str(anomaly) for anomaly in found[:MAX_DESCRIPTIONS]]

    def note(self, fault: Fault, *, hit: bool) -> None:
        if not hit:
            self.missed += 1
            return
        self.faults += 1
        self.kinds[f"{fault.kind}:{fault.step}" if fault.step else fault.kind] += 1

    def figures(self) -> dict[str, Any]:
        counts = {name: value for name in self.__slots__ if isinstance(value := getattr(self, name), int)}
        return counts | {
            "seconds": round(self.seconds),
            "lag_seconds": round(self.lag_seconds, 1),
            "classes": dict(self.classes),
            "kinds": dict(sorted(self.kinds.items())),
        }


class Run:
    """The setup of a run, removed at the end; its folder stays after a violation."""

    def __init__(self, options: RunOptions) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trimtab-faults-"))
        self._options = options
        self._tally = Tally()
        self._lock = Lock()
        self._pause = Event()
        self._layout = settings.TopicLayout()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for name in ("orders", "handed", "suspended", "wall-clock", "lake", "kafka", "tmp"):
                (self.folder / name).mkdir()
            logging.basicConfig(
                filename=self.folder / "faults.log",
                level=logging.WARNING,
                format="%(asctime)s %(name)s %(message)s",
            )
            log.setLevel(logging.INFO)
            on_disk = self._options.store == "disk"
            lake_disk = mount_small_disk(self.folder / "lake", DISK, stack) if on_disk else None
            broker_disk = mount_small_disk(self.folder / "kafka", BROKER_DISK, stack)
            os.environ["TMPDIR"] = str(self.folder / "tmp")
            paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            self._broker = Broker(self.folder / "kafka", LINKS, self._options.brokers)
            stack.callback(self._broker.close)
            (self.folder / "links.json").write_text(json.dumps(self._broker.link_addresses))
            self._catalog = RestCatalog(self.folder / "lake") if self._options.catalog == "rest" else None
            if self._catalog is not None:
                stack.callback(self._catalog.close)
            if self._options.store == "s3":
                wall_clock.build(self.folder)
            self._store = self._start_store(stack)
            warehouse = self._store.warehouse if self._store else self.folder / "lake"
            self._namespace = warehouse / settings.NAMESPACE
            self._supervisor = self._create_supervisor(stack)
            stack.callback(self._supervisor.close)
            world = World(
                self._broker,
                self._supervisor,
                self.folder / "lake",
                self.folder / "kafka",
                settings.consumer(self._options.protocol),
                settings.TOPICS,
                self._count_rows,
                self._catalog,
                self._store,
            )
            self._injector = Injector(world)
            self._tables: Tables = reader(self._options.format, warehouse, self._catalog, self._store)
            self._kinds = self._possible({"disk": lake_disk, f"{self._brokers}'s disk": broker_disk})
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        logging.shutdown()
        if self._tally.good and not self._options.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def go(self, show_progress: ShowProgress, print_line: PrintLine) -> Tally:
        """Inject the faults in rounds."""
        begun, tally = monotonic(), self._tally
        while tally.faults < self._options.faults:
            count = min(self._options.round, self._options.faults - tally.faults)
            number = self._options.first + tally.rounds
            checked = self._round(number, count, show_progress)
            tally.rounds += 1
            tally.seconds = monotonic() - begun
            for found, errors in checked:
                tally.add(found)
                for line in (*found.descriptions, *errors):
                    print_line(f"round {number}: {line}")
                    log.error("%s", line)
            if tally.stuck >= GIVE_UP:
                break
        if tally.lacks_compactions:
            print_line(f"none of {tally.compactions} compactions was committed: see compact.log")
        return tally

    # -- a round ----------------------------------------------------------------------------------

    def _round(
        self, number: int, count: int, show_progress: ShowProgress
    ) -> list[tuple[Findings, list[str]]]:
        steered = number % 2 == 1
        topic = f"fire-{number}"
        log.info("round %d, %s", number, "steered" if steered else "not steered")
        layouts = settings.LAYOUTS[self._options.write]
        layout = self._layout = layouts[number % len(layouts)]
        self._supervisor.work(steered=steered, settings={**layout.table_settings, **layout.first_settings})
        self._broker.make(topic, layout.partitions)  # those before would not read it as these do
        self._wait_for_consumers()
        kinds = {k: v for k, v in self._kinds.items() if layout.allows(v, steered=steered)}
        rng = random.Random(f"{self._options.seed}/{number}/traffic")  # noqa: S311 - it must replay
        traffic = Traffic(self._broker.bootstrap, topic, layout.partitions, rng, layout.records)
        seed, file = f"{self._options.seed}/{number}", self.folder / f"{topic}.transactions"
        more = (layout.partitions, seed, file, layout.records)
        transactions = Transactions(self._broker.bootstrap, topic, *more)
        load = self._injector.load = Load(topic, traffic, transactions)
        try:
            self._wait_for_table(topic)
            self._supervisor.write_settings(layout.table_settings)
            self._inject(draw(self._options.seed, number, count, kinds), show_progress)
        finally:
            self._injector.load = None
            traffic.end()
            transactions.end()
        checked = [self._settle(*other, [], show_progress) for other in load.others]
        found, errors = self._settle(topic, traffic, transactions.writes(), show_progress)
        found = check_layout(found, layout.partition_columns, self._read_partition_columns(topic))
        checked.append((found, errors))
        if all(found.good and not errors for found, errors in checked):
            self._tidy([topic, *(other for other, _ in load.others)])
        return checked

    def _settle(
        self, topic: str, traffic: Traffic, transactional: list[Write], show_progress: ShowProgress
    ) -> tuple[Findings, list[str]]:
        """Wait for the rest of a topic's records, and check its table."""
        held = read_numbers(self._broker.bootstrap, topic, traffic.partitions, self._options.isolation)
        show_progress(self._tally.faults, f"{topic}: {len(held)} records, coming to rest")
        return self._check(topic, traffic, transactional, held, self._rest(topic, held))

    def _check(
        self, topic: str, traffic: Traffic, transactional: list[Write], held: Numbers, stuck: list[str]
    ) -> tuple[Findings, list[str]]:
        upserts = self._options.write == "upsert"
        rows = [] if upserts else list(self._tables.rows(settings.table(topic)))
        starts, polls = read_logs(self.folder / "handed", topic)
        handed = [Handed(p.consumer, p.epoch, int(p.partition), p.time) for p in polls]
        transactional = place_writes(transactional, held)
        withdrawn = self._find_withdrawn(topic, traffic, transactional, held)
        writes = [*place_writes(traffic.writes, held), *abort_withdrawn(transactional, withdrawn)]
        acknowledged = acknowledge(writes)
        if upserts:
            committed = self._tables.count_compactions(settings.table(topic))
            self._tally.note_compactions(self._supervisor.compactions, committed)
            changed = list(self._tables.changed_rows(settings.table(topic)))
            found = check_changes(self._replay(topic, held), acknowledged, held, changed, handed)
            others = self._tables.changed_rows_by_duckdb(settings.table(topic))
            found = count_differences(found, changed, others, "DuckDB")
        else:
            found = check(topic, acknowledged, held, rows, handed)
        history = History(
            tuple(writes),
            tuple(starts),
            tuple(polls),
            tuple(events.Row("table", str(r.partition), r.offset, record_number(r.key)) for r in rows),
            read_committed=self._options.isolation == "read_committed",
            tables=() if upserts else ("table",),
            rewritten=find_rewritten(held),
            settled=not stuck,
        )
        if history.rewritten:
            log.warning("%s: written again by the producer: %s", topic, sorted(history.rewritten))
        self._tally.rewritten += len(history.rewritten)
        errors = [*traffic.faults, *stuck]
        anomalies = self._tally.add_history(history)
        self._tally.stuck += len(errors)
        log.info("%s: %s, %d anomalies", topic, found, len(anomalies))
        return found, [*anomalies, *errors]

    def _find_withdrawn(
        self, topic: str, traffic: Traffic, transactional: list[Write], held: Numbers
    ) -> set[tuple[int, int]]:
        """Return the records of committed transactions that the broker gives to no client."""
        due = {(p, offset) for p, offsets in acknowledge(transactional).items() for offset in offsets}
        if due <= held.keys():
            return set()
        # librdkafka may be wrong, and our consumers with it
        bootstrap, isolation = self._broker.bootstrap, self._options.isolation
        found = read_with_kafka_python(bootstrap, topic, traffic.partitions, isolation)
        withdrawn = due - held.keys() - found
        log.warning("%s: %d acknowledged as committed, read by no client", topic, len(withdrawn))
        self._tally.withdrawn += len(withdrawn)
        return withdrawn

    def _wait_for_consumers(self) -> None:
        """Wait for consumers: Spark starts slowly."""
        deadline = monotonic() + REST_SECONDS
        while sum(w.ready for w in self._supervisor.workers()) < LEAST and monotonic() < deadline:
            self._pause.wait(TICK)

    def _wait_for_table(self, topic: str) -> None:
        """Wait for the table: workers with other settings would create it in another layout.

        Raises RuntimeError.
        """
        deadline = monotonic() + REST_SECONDS
        while self._layout.first_settings and self._read_partition_columns(topic) is None:
            if monotonic() > deadline:
                raise RuntimeError(f"{topic} has no table after {REST_SECONDS:g} s: see the workers' logs")
            self._pause.wait(TICK)

    def _read_partition_columns(self, topic: str) -> tuple[str, ...] | None:
        try:
            return self._tables.read_partition_columns(settings.table(topic))
        except OSError:  # the metadata file was just replaced
            return None

    def _inject(self, faults: tuple[Fault, ...], show_progress: ShowProgress) -> None:
        begun = monotonic()
        with ThreadPoolExecutor(max_workers=16) as pool:
            waiting: list[Future[None]] = []
            for fault in faults:
                self._pause.wait(max(0.0, begun + fault.at - monotonic()))
                waiting.append(pool.submit(self._apply, fault, show_progress))
        for done in waiting:
            done.result()

    def _apply(self, fault: Fault, show_progress: ShowProgress) -> None:
        hit = self._injector.apply(fault)
        log.info("%s -> %s", fault, hit or "no target")
        with self._lock:
            self._tally.note(fault, hit=bool(hit))
        show_progress(self._tally.faults, f"{fault.kind} {hit}")

    def _rest(self, topic: str, held: Numbers) -> list[str]:
        """Wait until the table has all records; return an error if it is stuck."""
        last, since = "", monotonic()
        while missing := self._find_missing(topic, held):
            if missing != last:
                last, since = missing, monotonic()
            if monotonic() > since + REST_SECONDS:
                return [f"stuck: {missing}, no change for {REST_SECONDS:.0f} s"]
            self._pause.wait(REST_TICK)
        return []

    def _find_missing(self, topic: str, held: Numbers) -> str:
        """Return what the table lacks, "" if it is complete."""
        table = settings.table(topic)
        try:
            if self._options.write == "upsert":
                differing = {*self._tables.changed_rows(table)} ^ {*self._replay(topic, held).values()}
                return f"{len(differing)} rows differ from the replay" if differing else ""
            rows = self._tables.count(table)
        except OSError:  # the metadata file was just replaced
            return "the table could not be read"
        return f"{rows} of {len(held)} records" if rows < len(held) else ""

    def _replay(self, topic: str, held: Numbers) -> dict[str, ChangedRow]:
        return replay(topic, held, truncates=self._layout.truncates)

    def _count_rows(self, topic: str) -> int:
        try:
            return self._tables.count(settings.table(topic))
        except OSError:  # the metadata file was just replaced
            return 0

    def _tidy(self, topics: list[str]) -> None:
        """Delete a finished round's topics and files: the disk is small."""
        for topic in topics:
            self._broker.drop(topic)
            for folder in self._namespace.glob(f"{settings.table(topic)}*"):
                shutil.rmtree(folder, ignore_errors=True)

    # -- the setup --------------------------------------------------------------------------------

    def _start_store(self, stack: ExitStack) -> ObjectStoreRig | None:
        if self._options.store == "disk":
            return None
        os.environ.update(CREDENTIALS)  # of the consumers
        rig = ObjectStoreRig(self.folder, with_catalog=self._options.format == "iceberg")
        return stack.enter_context(rig)

    def _create_supervisor(self, stack: ExitStack) -> WorkerSupervisor:
        bootstrap = self._broker.bootstrap
        options = self._options
        uri = "" if self._catalog is None else self._catalog.uri
        ingest = {
            **settings.ingest(bootstrap, self.folder, options.format, options.stage, options.protocol),
            **settings.login(),
            **settings.rest_catalog(uri),
            "isolation.level": options.isolation,
        }
        if options.write == "upsert":
            registry = stack.enter_context(serve_registry())
            for schema in SCHEMAS:
                registry.add("changes", schema)
            ingest |= settings.upserts(registry.url)
        if self._store:
            ingest = settings.on_object_store(ingest, self._store.settings(options.format))
        return WorkerSupervisor(self.folder, ingest, settings.sidecar(bootstrap))

    def _possible(self, disks: dict[str, Path | None]) -> dict[str, Kind]:
        only = self._options.only or tuple(KINDS)
        world = self._world() | {name for name, folder in disks.items() if folder is not None}
        return {k: v for k, v in KINDS.items() if k in only and v.needs in world}

    def _world(self) -> set[str]:
        """Return what faults of this run may need, besides file systems that they may fill."""
        options = self._options
        world = {"", "several partitions", options.protocol, options.write, self._brokers}
        if options.store == "s3":
            return world | {"s3", *(("rest server",) if options.format == "iceberg" else ())}
        if options.format == "iceberg":
            world.add("rest" if options.catalog == "rest" else "sqlite")
        return world

    @property
    def _brokers(self) -> str:
        return "three brokers" if self._options.brokers > 1 else "one broker"
