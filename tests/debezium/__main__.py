"""`make test-debezium`: tables of PostgreSQL under load, and their copies in lakes of both formats.

PostgreSQL, Debezium's engine, a broker, and a `trimtab ingest` for each table format. A writer changes the
tables all the time. In each round every sink and the engine are killed and started again; in the second
one the tables also get a column more. Then the load stops, and once the lakes have caught up, or
`CATCH_UP_SECONDS` later, each table is compared with its copies, row for row.

Two layouts, one after the other: topics of several partitions; and topics of one partition, for which
TRUNCATEs are applied. The last line is RESULT {json}; the exit code is 1 if a row differs, a record became
a dead letter, or a sink did not end in order.
"""

import json
import random
import re
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from debezium import load, sinks
from debezium.sinks import FORMATS, Sink
from debezium.source import DebeziumEngine, SourceDatabase
from trimtab.testing import run_broker

CATCH_UP_SECONDS: Final = 180.0
POLL_SECONDS: Final = 0.5
KILL_PLACES: Final = (0.1, 0.8)  # earliest and latest time of a kill, as a part of a round
LOG_TAIL: Final = 3000

Rows = Mapping[str, list[dict[str, Any]]]  # by table


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """Topics of a run."""

    name: str
    partitions: int
    truncates: bool
    wraps_values: bool  # in `schema` and `payload`, as Connect's JsonConverter does by default


LAYOUTS: Final = (
    TopicLayout("partitions", 3, truncates=False, wraps_values=False),
    TopicLayout("truncates", 1, truncates=True, wraps_values=True),
)


def main() -> int:
    """Run all layouts; return the exit code."""
    options = _arguments()
    totals, catch_ups, seconds = Counter[str](), list[float](), 0.0
    with run_broker() as broker:
        for layout in LAYOUTS:
            with running_copy(layout, broker.bootstrap, options) as copy:
                copy.run_rounds(options.rounds)
            totals += copy.totals
            catch_ups += copy.catch_ups
            seconds += copy.writer.seconds
    differences = {form: totals[f"differences {form}"] for form in FORMATS}
    result = {
        **{name: totals[name] for name in ("rounds", "changes", "truncations", "schema_changes")},
        "restarts": {name: totals[f"kill {name}"] for name in (*FORMATS, "engine")},
        "differences": differences,
        "dead_letters": totals["dead_letters"],
        "unclean_ends": totals["unclean_ends"],
        "changes_per_s": round(totals["changes"] / seconds),
        "longest_catch_up_s": round(max(catch_ups), 1),
    }
    print(f"RESULT {json.dumps(result)}")  # noqa: T201
    return int(bool(sum(differences.values()) or totals["dead_letters"] or totals["unclean_ends"]))


def _arguments() -> Namespace:
    arguments = ArgumentParser(prog="debezium", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3, help="of each layout")
    arguments.add_argument("--rate", type=float, default=500.0, help="changed rows per second")
    arguments.add_argument("--seconds", type=float, default=30.0, help="of load in a round")
    arguments.add_argument("--seed", type=int, default=1)
    return arguments.parse_args()


@contextmanager
def running_copy(layout: TopicLayout, bootstrap: str, options: Namespace) -> Iterator["DatabaseCopy"]:
    """Run a database with its tables, Debezium's engine and the sinks."""
    chance = random.Random(f"{options.seed} {layout.name}")  # noqa: S311 - repeatable
    topics = create_topics(layout, bootstrap)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-debezium-")))
        database = stack.enter_context(SourceDatabase(folder / "postgres.log"))
        database.execute(*(line for table in load.TABLES for line in load.create_table(table)))
        engine = DebeziumEngine(database, bootstrap, folder, engine_settings(layout))
        settings = ingest_settings(layout, bootstrap, topics)
        copies = [Sink(form, settings, folder) for form in FORMATS]
        for part in (engine, *copies):
            stack.callback(part.kill)
            part.start()
        writer = load.LoadWriter(database, options.rate, chance, truncates=layout.truncates)
        yield DatabaseCopy(database, engine, copies, writer, chance, options.seconds)


def create_topics(layout: TopicLayout, bootstrap: str) -> dict[str, str]:
    """Create the topics of the tables, and two that have no changes; return the tables' names by topic."""
    topics = {f"{layout.name}.public.{table.name}": table.name for table in load.TABLES}
    others = (f"{layout.name}.transaction", f"__debezium-heartbeat.{layout.name}")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, layout.partitions) for name in (*topics, *others)])
    for created in made.values():
        created.result(30)
    return topics | {name: re.sub(r"\W", "_", name) for name in others}


def engine_settings(layout: TopicLayout) -> dict[str, str]:
    """Return the settings of Debezium that a layout needs."""
    return {
        "topic.prefix": layout.name,
        "provide.transaction.metadata": "true",
        "heartbeat.interval.ms": "1000",
        "converter.schemas.enable": str(layout.wraps_values).lower(),
        "skipped.operations": "none" if layout.truncates else "t",
    }


def ingest_settings(layout: TopicLayout, bootstrap: str, topics: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of both sinks."""
    keys = {f"{layout.name}.public.{table.name}": list(table.key) for table in load.TABLES}
    return {
        "bootstrap.servers": bootstrap,
        "group.id": layout.name,
        "session.timeout.ms": 6000,  # the partitions of a killed sink wait for its end
        "topics": list(topics),
        "lake.table": sinks.NAMESPACE + ".{topic}",
        "lake.tables": {topic: f"{sinks.NAMESPACE}.{name}" for topic, name in topics.items()},
        "lake.decoder": "json",
        "lake.schema": load.LAKE_COLUMNS,
        "lake.schema.evolution": "add",
        "lake.file.writer": "arrow",
        "lake.write": "upsert",
        "lake.key": {**keys, "*": "id"},
        "batch.max.age": "1 s",
        **({"lake.truncate": "apply"} if layout.truncates else {}),
    }


def plan_round(chance: random.Random, seconds: float, *, adds_column: bool) -> list[tuple[float, str]]:
    """Return the times and names of what happens in a round."""
    first, last = (part * seconds for part in KILL_PLACES)
    plan = [(chance.uniform(first, last), f"kill {name}") for name in (*FORMATS, "engine")]
    return sorted([*plan, *([(seconds / 2, "add column")] if adds_column else [])])


class DatabaseCopy:
    """Rounds of load and kills, after each of which tables and copies are compared."""

    def __init__(
        self,
        database: SourceDatabase,
        engine: DebeziumEngine,
        copies: list[Sink],
        writer: load.LoadWriter,
        chance: random.Random,
        seconds: float,
    ) -> None:
        self.totals = Counter[str]()
        self.catch_ups = list[float]()
        self.writer = writer
        self._database, self._engine, self._sinks = database, engine, copies
        self._chance, self._seconds = chance, seconds
        self._pause = Event()

    def run_rounds(self, count: int) -> None:
        """Run the rounds, and stop the sinks in order."""
        self._compare()  # the snapshot
        for number in range(count):
            self._run_round(plan_round(self._chance, self._seconds, adds_column=number == 1))
            self._compare()
            self.totals["rounds"] += 1
        for sink in self._sinks:
            self._stop(sink)
        self._compare()
        self.totals["changes"] = self.writer.changes
        self.totals["truncations"] = self.writer.truncations
        for sink in self._sinks:
            self.totals["dead_letters"] += sinks.count_dead_letters(sink.format, sink.warehouse)

    def _run_round(self, plan: list[tuple[float, str]]) -> None:
        begin = monotonic()
        self.writer.start()
        for at, name in [*plan, (self._seconds, "")]:
            self._pause.wait(max(0.0, begin + at - monotonic()))
            if name:
                self._act(name)
        self.writer.stop()

    def _act(self, name: str) -> None:
        if name == "add column":
            self._add_column()
            return
        parts: dict[str, DebeziumEngine | Sink] = {sink.format: sink for sink in self._sinks}
        part = (parts | {"engine": self._engine})[name.removeprefix("kill ")]
        part.kill()
        part.start()
        self.totals[name] += 1

    def _stop(self, sink: Sink) -> None:
        if (code := sink.stop()) != 0:
            self.totals["unclean_ends"] += 1
            log = sink.log.read_text(errors="replace")[-LOG_TAIL:]
            _log(f"{sink.format} ended with {code}; {sink.log.name}:\n{log}")

    def _add_column(self) -> None:
        """Let the sinks know the column first: JSON has no schema that could tell them."""
        for sink in self._sinks:
            self._stop(sink)
            sink.configure(lake_schema=load.LATER_LAKE_COLUMNS)
            sink.start()
        self._database.execute(*map(load.add_column, load.TABLES))
        self.writer.has_note = True
        self.totals["schema_changes"] += 1

    def _compare(self) -> None:
        """Wait until the copies equal the tables; count the rows that differ even then."""
        begin, due = monotonic(), self._read_database()
        for sink in self._sinks:
            found = self._await_copy(sink, due, begin + CATCH_UP_SECONDS)
            differing = sum(sinks.count_differences(due[name], found[name]) for name in due)
            self.totals[f"differences {sink.format}"] += differing
            if differing:
                self._report(sink, due, found)
        self.catch_ups.append(monotonic() - begin)
        rows = {name: len(one) for name, one in due.items()}
        _log(f"{self.writer.changes} changes; rows: {rows}; caught up after {self.catch_ups[-1]:.1f} s")

    def _await_copy(self, sink: Sink, due: Rows, deadline: float) -> Rows:
        while True:
            found = {name: sinks.read_lake_table(sink.format, sink.warehouse, name) for name in due}
            equal = all(sinks.count_differences(due[name], found[name]) == 0 for name in due)
            if equal or sink.has_ended or monotonic() > deadline:
                return found
            self._pause.wait(POLL_SECONDS)

    def _read_database(self) -> Rows:
        select: Callable[[load.SourceTable], str] = lambda table: load.select_rows(  # noqa: E731
            table, has_note=self.writer.has_note
        )
        return {table.name: self._database.read_rows(select(table), load.SCHEMA) for table in load.TABLES}

    def _report(self, sink: Sink, due: Rows, found: Rows) -> None:
        for name, rows in due.items():
            count = sinks.count_differences(rows, found[name])
            _log(f"{sink.format} {name}: {count} rows differ; {len(rows)} are due, {len(found[name])} found")
        for file in (sink.log, self._engine.log):
            _log(f"{file.name}:\n{file.read_text(errors='replace')[-LOG_TAIL:]}")


def _log(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
