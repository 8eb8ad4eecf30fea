"""Process of one case of bench_upsert: upsert_host.py CASE PLAN.

PLAN is JSON: `settings` of the lake, `rows`, `files`, `warm`, `batches`, `batch` and `compact`. The process
fills a table with `rows` rows in `files` commits, applies `warm` batches, prints `ready`, waits for a line,
applies `batches` batches of `batch` changes, compacts the table after each `compact` of them (0: never), and
prints `end {seconds, first, last}`:
changes per CPU second of the first ten batches and of the last ten. Then it compares the table with a replay
in plain Python: `found {rows}`.
"""

import json
import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from time import monotonic, perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.ingest_meter import cpu_seconds
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.changes.change_decoders import JsonChangeDecoder
from trimtab.consumer_sdk.lake.changes.change_formats import recognize_debezium
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.changes.change_settings import DEBEZIUM
from trimtab.consumer_sdk.lake.changes.json_change_schemas import build_value_schema
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges
from trimtab.consumer_sdk.lake.commits.fenced_commit import CommitSucceeded, commit_fenced
from trimtab.consumer_sdk.lake.commits.maintenance import compact_table
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.model.interfaces import new_attempt_id
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan
from trimtab.consumer_sdk.lake.options.settings import parse_session_config
from trimtab.consumer_sdk.lake.projection.keyed_projection import KeyedProjection
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.session.factory import create_maintenance, open_lake

NAME: Final = "lake.bench"
KEY: Final = ("id",)
WHERE: Final = TopicPartition("bench", 0)
BACKOFF: Final = RetryBackoff(random.Random(1))  # noqa: S311 - jitter
ROW_SCHEMA: Final = pa.schema([("id", pa.int64()), ("version", pa.int64()), ("text", pa.string())])
SOURCE: Final = {
    "version": "3.2.0.Final",
    "connector": "postgresql",
    "name": "bench",
    "ts_ms": 1,
    "snapshot": "false",
    "db": "bench",
    "sequence": '["1","2"]',
    "schema": "public",
    "table": "bench",
    "txId": 1,
    "lsn": 1,
    "xmin": None,
}
"""Debezium's description of a change's source; nobody reads it, but everybody parses it."""

ENDS: Final = 10
"""Batches at the beginning and at the end that are compared."""

UPDATES, DELETES = 0.5, 0.1
"""Shares of a batch; the rest are inserts."""

MERGE: Final = """\
MERGE INTO {table} t USING changes s ON t.id = s.id
WHEN MATCHED AND s.deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET version = s.version, text = s.text
WHEN NOT MATCHED AND NOT s.deleted THEN INSERT (id, version, text) VALUES (s.id, s.version, s.text)"""


class Source:
    """Seeded changes, and the rows that a table must have after them."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(7)
        self._alive = np.empty(0, np.int64)
        self._next_id = 0
        self._version = 0
        self.versions: dict[int, int] = {}

    def insert(self, count: int) -> KeyedChanges:
        """Return new rows."""
        ids = np.arange(self._next_id, self._next_id + count)
        self._next_id += count
        self._alive = np.concatenate([self._alive, ids])
        return self._changes(ids, np.empty(0, np.int64))

    def change(self, count: int) -> KeyedChanges:
        """Return one batch of changes, each of another key."""
        picked = self._rng.choice(len(self._alive), int(count * (UPDATES + DELETES)), replace=False)
        touched = self._alive[picked]
        updated, deleted = np.split(touched, [int(count * UPDATES)])
        self._alive = np.delete(self._alive, picked[len(updated) :])
        new = np.arange(self._next_id, self._next_id + count - len(touched))
        self._next_id += len(new)
        self._alive = np.concatenate([self._alive, new])
        return self._changes(np.concatenate([updated, new]), deleted)

    def _changes(self, upserted: Any, deleted: Any) -> KeyedChanges:
        self._version += 1
        for key in deleted.tolist():
            del self.versions[key]
        self.versions.update(dict.fromkeys(upserted.tolist(), self._version))
        texts = [f"row {n:012d} of the table, changed by batch {self._version:06d}" for n in upserted]
        rows = {"id": upserted, "version": np.full(len(upserted), self._version), "text": texts}
        keys = pa.table({"id": np.concatenate([upserted, deleted])})
        return KeyedChanges(pa.table(rows), keys, KEY)


class Case(ABC):
    """A way to apply changes to the table of a lake; created empty."""

    @abstractmethod
    def load(self, rows: Any) -> None:
        """Append rows."""

    def prepare(self, changes: KeyedChanges) -> Any:
        """Return a batch as `apply` takes it; not measured."""
        return changes

    @abstractmethod
    def apply(self, changes: Any) -> None:
        """Apply one batch."""

    @abstractmethod
    def read(self) -> Any:
        """Return id and version of all rows, as an Arrow table."""


class InSpark(Case):
    """A table in this process's Spark session."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.lake = open_lake(parse_session_config(settings))
        empty = with_topic(Source().insert(1))
        columns = empty.upserts.slice(0, 0)
        self.lake.create_table(NAME, KeyedChanges(columns, empty.touched_keys, empty.key_columns))

    def load(self, rows: Any) -> None:
        self._commit(add_topic(rows))

    def compact(self) -> None:
        """Rewrite small files, as `trimtab tables compact` does."""
        compact_table(create_maintenance(self.lake), NAME, None, BACKOFF)

    def read(self) -> Any:
        self.lake.spark.catalog.refreshTable(NAME)
        return self.lake.spark.table(NAME).select("id", "version").toArrow()

    def _commit(self, frame: Any) -> None:
        table = self.lake.open_table(NAME)
        assert table is not None
        at = table.read_offsets().offsets.next_offset("bench", WHERE)
        staged = replace(table.stage_rows(frame, new_attempt_id()), begun_at=monotonic())
        spans = {WHERE: OffsetSpan(at, at or 0, (at or 0) + 1)}
        outcome = commit_fenced(table, staged, "bench", spans, BACKOFF, monotonic)
        assert isinstance(outcome, CommitSucceeded)


class Trimtab(InSpark):
    """Trimtab's commit of keyed changes."""

    def apply(self, changes: KeyedChanges) -> None:
        self._commit(with_topic(changes))


class TrimtabFromJson(InSpark):
    """The same from the records of a topic: Debezium's envelopes in JSON, which are decoded."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        decoder = JsonChangeDecoder(
            build_value_schema(ROW_SCHEMA, DEBEZIUM), pa.schema([ROW_SCHEMA.field(0)])
        )
        self._projection = KeyedProjection(NAME, decoder, recognize_debezium, KeyRules(KEY))

    def prepare(self, changes: KeyedChanges) -> Any:
        """Return the records of the changes."""
        return encode_records(changes)

    def apply(self, changes: Any) -> None:
        keyed, letters = self._projection.read_changes(changes)
        assert letters is None
        columns = ("topic", *ROW_SCHEMA.names)
        self._commit(KeyedChanges(keyed.upserts.select(columns), keyed.touched_keys, keyed.key_columns))


class SparkMerge(InSpark):
    """MERGE INTO of the same table, which writes deletion vectors, too."""

    def apply(self, changes: KeyedChanges) -> None:
        spark = self.lake.spark
        spark.createDataFrame(with_deletes(changes)).createOrReplaceTempView("changes")
        spark.catalog.refreshTable(NAME)
        spark.sql(MERGE.format(table=NAME)).collect()


class PyIceberg(Case):
    """pyiceberg's upsert and delete: several snapshots, which are not atomic; format version 2."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - of this case only

        folder = Path(settings["lake.warehouse"])
        folder.mkdir(parents=True)
        catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        catalog.create_namespace("lake")
        self.table = catalog.create_table(NAME, Source().insert(1).upserts.schema)

    def load(self, rows: Any) -> None:
        self.table.append(rows)

    def apply(self, changes: KeyedChanges) -> None:
        from pyiceberg.expressions import In  # noqa: PLC0415 - of this case only

        deleted = deleted_keys(changes)
        if len(deleted):
            self.table.delete(In("id", deleted.to_pylist()))
        self.table.upsert(changes.upserts, join_cols=["id"])

    def read(self) -> Any:
        return self.table.scan(selected_fields=("id", "version")).to_arrow()


class DeltaRs(Case):
    """delta-rs' MERGE, which rewrites the touched data files."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._folder = settings["lake.warehouse"]

    def load(self, rows: Any) -> None:
        from deltalake import write_deltalake  # noqa: PLC0415 - of this case only

        write_deltalake(self._folder, rows, mode="append")

    def apply(self, changes: KeyedChanges) -> None:
        from deltalake import DeltaTable  # noqa: PLC0415 - of this case only

        merge = DeltaTable(self._folder).merge(
            with_deletes(changes), "t.id = s.id", source_alias="s", target_alias="t"
        )
        columns = {name: f"s.{name}" for name in changes.upserts.column_names}
        merge = merge.when_matched_delete("s.deleted").when_matched_update(columns)
        merge.when_not_matched_insert(columns, "not s.deleted").execute()

    def read(self) -> Any:
        from deltalake import DeltaTable  # noqa: PLC0415 - of this case only

        return DeltaTable(self._folder).to_pyarrow_table(columns=["id", "version"])


def with_topic(changes: KeyedChanges) -> KeyedChanges:
    """Return the changes as the sink has them: the topic is a column, and a part of the key."""
    keys = ("topic", *changes.key_columns)
    return KeyedChanges(add_topic(changes.upserts), add_topic(changes.touched_keys), keys)


def add_topic(rows: Any) -> Any:
    return rows.add_column(0, "topic", [pa.array([WHERE.topic] * rows.num_rows)])


def deleted_keys(changes: KeyedChanges) -> Any:
    """Return the keys to delete."""
    return changes.touched_keys.column("id").slice(changes.upserts.num_rows)


def with_deletes(changes: KeyedChanges) -> Any:
    """Return upserts and deletes as rows, with the column `deleted`."""
    upserts, gone = changes.upserts, deleted_keys(changes)
    more = pa.table(
        {"id": gone, "version": pa.nulls(len(gone), pa.int64()), "text": pa.nulls(len(gone), pa.string())}
    )
    flags = pa.array(np.arange(len(upserts) + len(gone)) >= len(upserts))
    return pa.concat_tables([upserts, more]).append_column("deleted", flags)


def encode_records(changes: KeyedChanges) -> Any:
    """Return the changes as the records of a topic."""
    upserts, gone = changes.upserts.to_pylist(), deleted_keys(changes).to_pylist()
    envelopes = [{"op": "u", "before": None, "after": row, "source": SOURCE, "ts_ms": 1} for row in upserts]
    envelopes += [
        {
            "op": "d",
            "before": {"id": key, "version": None, "text": None},
            "after": None,
            "source": SOURCE,
            "ts_ms": 1,
        }
        for key in gone
    ]
    keys = [row["id"] for row in upserts] + gone
    count = len(keys)
    columns = {
        "topic": [WHERE.topic] * count,
        "partition": [WHERE.partition] * count,
        "offset": list(range(count)),
        "timestamp": [None] * count,
        "key": [b'{"id":%d}' % key for key in keys],
        "value": [json.dumps(envelope, separators=(",", ":")).encode() for envelope in envelopes],
        "headers": [None] * count,
    }
    return pa.table(columns, schema=RECORD_SCHEMA)


CASES: dict[str, Callable[[Mapping[str, Any]], Case]] = {
    "trimtab_iceberg": Trimtab,
    "trimtab_delta": Trimtab,
    "trimtab_iceberg_spark": Trimtab,
    "trimtab_delta_spark": Trimtab,
    "trimtab_iceberg_json": TrimtabFromJson,
    "trimtab_delta_json": TrimtabFromJson,
    "spark_merge_iceberg": SparkMerge,
    "spark_merge_delta": SparkMerge,
    "pyiceberg": PyIceberg,
    "delta_rs": DeltaRs,
}


def apply_all(case: Case, batches: Sequence[Any], compact: int) -> list[float]:
    """Apply the batches, compacting after every `compact` of them; return the CPU seconds of each."""
    used: list[float] = []
    for number, batch in enumerate(batches, 1):
        before = cpu_seconds(os.getpid())
        case.apply(batch)
        used.append(max(0.01, cpu_seconds(os.getpid()) - before))  # the resolution of /proc
        if compact and number % compact == 0 and isinstance(case, InSpark):
            case.compact()
    return used


def main(name: str, text: str) -> None:
    plan = json.loads(text)
    case, source = CASES[name](plan["settings"]), Source()
    for number in range(plan["files"]):
        first, end = (plan["rows"] * n // plan["files"] for n in (number, number + 1))
        case.load(source.insert(end - first).upserts)
    for _ in range(plan["warm"]):
        case.apply(case.prepare(source.change(plan["batch"])))
    batches = [case.prepare(source.change(plan["batch"])) for _ in range(plan["batches"])]
    print("ready", flush=True)
    sys.stdin.readline()
    began = perf_counter()
    used = apply_all(case, batches, plan["compact"])
    ends = used[:ENDS], used[-ENDS:]
    print("end", perf_counter() - began, *(plan["batch"] / mean(end) for end in ends), flush=True)
    sys.stdin.readline()
    found = case.read()
    rows = dict(zip(found["id"].to_pylist(), found["version"].to_pylist(), strict=True))
    if found.num_rows != len(rows) or rows != source.versions:
        sys.exit(
            f"{name}: the table differs from the replay: {found.num_rows} rows, not {len(source.versions)}"
        )
    print("found", found.num_rows, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
