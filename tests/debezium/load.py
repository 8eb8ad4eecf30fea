"""Load on the tables of a database: transactions of random statements, at a rate of changed rows.

1. A statement inserts, updates, deletes or truncates rows of one table, or changes their keys; it may find
   nothing to change.
2. Row `id` has the code `k<id>`. Ids are below `KEYS`; a row whose key changes gets its id plus `KEYS`.
"""

# ruff: noqa: S608 - statements of the tests' own

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import Final

import pyarrow as pa

from debezium.source import SourceDatabase

KEYS: Final = 4000
FIRST_ROWS: Final = 1000  # which Debezium reads by its snapshot
LATER_COLUMN: Final = "note"
TRUNCATE_CHANCE: Final = 0.01  # of a transaction
MAX_STATEMENTS: Final = 8
UPDATE_PARTS: Final = 97  # of the keys, one of which an update of many rows changes
_TAG: Final = re.compile(r"(?:INSERT 0|UPDATE|DELETE) (\d+)")

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("code", pa.string()),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        (LATER_COLUMN, pa.string()),
    ]
)
LAKE_COLUMNS: Final = (
    "id BIGINT, code STRING, name STRING, n INT, price DECIMAL(10,2), day DATE, at TIMESTAMP"
)
LATER_LAKE_COLUMNS: Final = f"{LAKE_COLUMNS}, {LATER_COLUMN} STRING"
_DATABASE_COLUMNS: Final = (
    "id bigint, code text, name text, n int, price numeric(10,2), day date, at timestamptz"
)


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the database."""

    name: str
    key: tuple[str, ...]
    replica_identity: str = "DEFAULT"


TABLES: Final = (
    SourceTable("orders", ("id",)),
    SourceTable("customers", ("id", "code"), "FULL"),
    SourceTable("carts", ("code",)),
)


def create_table(table: SourceTable) -> list[str]:
    """Return the statements that create a table with its first rows."""
    values = "id, 'k' || id, 'old', 1, 0.10, NULL, now()"
    return [
        f"CREATE TABLE {table.name} ({_DATABASE_COLUMNS}, PRIMARY KEY ({', '.join(table.key)}))",
        f"ALTER TABLE {table.name} REPLICA IDENTITY {table.replica_identity}",
        f"INSERT INTO {table.name} SELECT {values} FROM generate_series(0, {FIRST_ROWS - 1}) AS id",
    ]


def add_column(table: SourceTable) -> str:
    """Return the statement by which a table gets its later column."""
    return f"ALTER TABLE {table.name} ADD COLUMN {LATER_COLUMN} text"


def select_rows(table: SourceTable, *, has_note: bool) -> str:
    """Return the query of all rows, with the columns of `SCHEMA`."""
    at = """to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS at"""
    note = LATER_COLUMN if has_note else f"NULL AS {LATER_COLUMN}"
    return f"SELECT id, code, name, n, price, day, {at}, {note} FROM {table.name}"


def make_transaction(chance: random.Random, *, has_note: bool, truncates: bool) -> list[str]:
    """Return the statements of a transaction."""
    statements = [
        make_statement(chance, chance.choice(TABLES).name, has_note=has_note)
        for _ in range(chance.randint(1, MAX_STATEMENTS))
    ]
    if truncates and chance.random() < TRUNCATE_CHANCE:
        place = chance.randint(0, len(statements))
        statements.insert(place, f"TRUNCATE {chance.choice(TABLES).name}")
    return statements


def make_statement(chance: random.Random, table: str, *, has_note: bool) -> str:
    """Return a statement that changes rows of a table, or finds none to change."""
    key, other = chance.randrange(KEYS), chance.randrange(KEYS)
    name = chance.choice(["NULL", "'é \"x\" {y}'", "'n'"])
    note = chance.choice(["NULL", "'noted'"])
    values = f"{name}, {other}, {other}.5, date '2026-01-01' + {other}, now()"
    sets = f"name = {name}, n = n + 1, at = now()"
    if has_note:
        values, sets = f"{values}, {note}", f"{sets}, {LATER_COLUMN} = {note}"
    moved = key + KEYS
    free = f"NOT EXISTS (SELECT 1 FROM {table} WHERE id = {moved})"
    series = f"generate_series({key}, {min(key + 20, KEYS - 1)})"
    return chance.choice(
        [
            f"INSERT INTO {table} SELECT id, 'k' || id, {values} FROM {series} AS id ON CONFLICT DO NOTHING",
            f"UPDATE {table} SET {sets} WHERE id = {key}",
            f"UPDATE {table} SET {sets} WHERE id % {UPDATE_PARTS} = {key % UPDATE_PARTS}",
            f"UPDATE {table} SET id = {moved}, code = 'k{moved}' WHERE id = {key} AND {free}",
            f"DELETE FROM {table} WHERE id BETWEEN {key} AND {key + 10} OR id = {other + KEYS}",
        ]
    )


def count_changed_rows(tags: Iterable[str]) -> int:
    """Return the number of rows that statements have changed, from their command tags."""
    return sum(int(match[1]) for match in map(_TAG.fullmatch, tags) if match)


class LoadWriter:
    """Runs transactions in a thread, at a rate of changed rows per second."""

    def __init__(
        self, database: SourceDatabase, rate: float, chance: random.Random, *, truncates: bool
    ) -> None:
        self.has_note = False  # whether the tables have their later column
        self.changes = 0
        self.truncations = 0
        self.seconds = 0.0
        self._database, self._rate, self._chance, self._truncates = database, rate, chance, truncates
        self._stop = Event()
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin with the load."""
        self._stop.clear()
        self._thread = Thread(target=self._work, name="load")
        self._thread.start()

    def stop(self) -> None:
        """End after the transaction in progress. Raises RuntimeError if the database refused one."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        begin, before = monotonic(), self.changes
        try:
            with self._database.open_session() as session:
                while not self._stop.is_set():
                    self._note(session.run_transaction(self._make_transaction()))
                    due = begin + (self.changes - before) / self._rate
                    self._stop.wait(max(0.0, due - monotonic()))
        except BaseException as error:  # noqa: BLE001 - `stop` raises it
            self._error = error
        self.seconds += monotonic() - begin

    def _make_transaction(self) -> list[str]:
        return make_transaction(self._chance, has_note=self.has_note, truncates=self._truncates)

    def _note(self, tags: Sequence[str]) -> None:
        self.changes += count_changed_rows(tags)
        self.truncations += tags.count("TRUNCATE TABLE")
