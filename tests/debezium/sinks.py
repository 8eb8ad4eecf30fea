"""`trimtab ingest` of one table format as a process, and its tables, read without it."""

import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pyarrow as pa
import yaml

from debezium.load import SCHEMA
from trimtab.cli.demo.jvm_class_archive import find_archive, jvm_options
from trimtab.cli.supervised import SupervisedProcess

FORMATS: Final = ("iceberg", "delta")
NAMESPACE: Final = "shop"
DEAD_LETTERS: Final = "_dead_letter"
STOP_SECONDS: Final = 120.0


class Sink:
    """A consumer of the changes; started again, it continues where its tables end."""

    def __init__(self, table_format: str, settings: Mapping[str, Any], folder: Path) -> None:
        self.format = table_format
        self.warehouse = folder / table_format
        self.log = folder / f"{table_format}.log"
        self._config = folder / f"{table_format}.yaml"
        self._settings = {
            **settings,
            "group.id": f"{settings['group.id']}-{table_format}",
            "lake.format": table_format,
            "lake.warehouse": str(self.warehouse),
            "spark.master": "local[1]",
            "spark.driver.memory": "512m",
            "spark.ui.enabled": False,
            "spark.driver.extraJavaOptions": jvm_options(find_archive()),
        }
        self._process: SupervisedProcess | None = None
        self._log_begin = 0  # of the process, in bytes

    def configure(self, **changes: Any) -> None:
        """Change settings, given with underscores for dots; they hold from the next start on."""
        self._settings |= {name.replace("_", "."): value for name, value in changes.items()}

    def start(self) -> None:
        """Start the process."""
        self._config.write_text(yaml.safe_dump(self._settings))
        command = [sys.executable, "-m", "trimtab.cli", "ingest", "--config", str(self._config)]
        self._log_begin = self.log.stat().st_size if self.log.exists() else 0
        self._process = SupervisedProcess([command], self.log, 0.0)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself."""
        assert self._process is not None
        self._process.read_status(0.0)
        return self._process.has_ended

    def kill(self) -> None:
        """Send SIGKILL; its JVM may finish a commit."""
        if self._process is not None:
            self._process.stop()

    def stop(self) -> int | None:
        """Send SIGTERM; return the exit code, None if the process does not end."""
        process, deadline = self._process, monotonic() + STOP_SECONDS
        assert process is not None
        while not (process.has_ended or (process.pid and self._handles_signals())):
            process.read_status(0.2)
        if not process.has_ended:
            os.kill(process.pid, signal.SIGTERM)
        while not process.has_ended and monotonic() < deadline:
            process.read_status(1.0)
        process.stop()
        return process.exit_code

    def _handles_signals(self) -> bool:
        """Return whether the process is past its imports; before, SIGTERM ends any program of Python."""
        return self.log.exists() and b"starting Spark" in self.log.read_bytes()[self._log_begin :]


def read_lake_table(table_format: str, warehouse: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table, with nulls in columns that it lacks; none if there is no table."""
    table = _READERS[table_format](warehouse, name)
    if table is None:
        return []
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    ]
    rows: list[dict[str, Any]] = pa.table(columns, schema=SCHEMA).to_pylist()
    return rows


def list_lake_tables(table_format: str, warehouse: Path) -> list[str]:
    """Return the names of all tables."""
    if table_format == "delta":
        return sorted(log.parent.name for log in (warehouse / NAMESPACE).glob("*/_delta_log"))
    return sorted(name for (name,) in _query_catalog(warehouse, "SELECT table_name FROM iceberg_tables"))


def count_dead_letters(table_format: str, warehouse: Path) -> int:
    """Return the number of records that the sink has refused."""
    names = [name for name in list_lake_tables(table_format, warehouse) if name.endswith(DEAD_LETTERS)]
    return sum(len(_READERS[table_format](warehouse, name) or ()) for name in names)


def count_differences(left: Iterable[Mapping[str, Any]], right: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of rows that one side has and the other has not, or less often."""
    one, other = (Counter(tuple(row.values()) for row in rows) for rows in (left, right))
    return ((one - other) + (other - one)).total()


def _read_iceberg(warehouse: Path, name: str) -> Any:
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - slow to load

    query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
    found = _query_catalog(warehouse, query, name)
    return StaticTable.from_metadata(found[0][0]).scan().to_arrow() if found else None


def _query_catalog(warehouse: Path, query: str, *values: str) -> Sequence[tuple[Any, ...]]:
    """Return rows of the embedded catalog, an SQLite file; none before it has tables of its own."""
    file = warehouse / "catalog.db"
    if not file.exists():
        return []
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as catalog:
        try:
            return catalog.execute(query, values).fetchall()
        except sqlite3.OperationalError:
            return []


def _read_delta(warehouse: Path, name: str) -> Any:
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - slow to load

    folder = warehouse / NAMESPACE / name
    if not any((folder / "_delta_log").glob("*.json")):
        return None
    query = QueryBuilder().register("t", DeltaTable(folder))  # applies deletion vectors
    return pa.table(query.execute("SELECT * FROM t").read_all())


_READERS: Final = {"iceberg": _read_iceberg, "delta": _read_delta}
