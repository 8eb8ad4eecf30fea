"""A PostgreSQL database and Debezium's engine, which produces its changes."""

import io
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyarrow import csv

from object_store.servers import HOST, Postgres, find_postgres_program
from trimtab.cli.supervised import SupervisedProcess
from trimtab.consumer_sdk.java.jars import fetch_jars
from trimtab.consumer_sdk.java.java_runtime import require_java

DEBEZIUM: Final = (
    "io.debezium:debezium-embedded:3.2.0.Final",
    "io.debezium:debezium-connector-postgres:3.2.0.Final",
)
CONNECT: Final = (
    "org.slf4j:slf4j-simple:1.7.36",  # for a log, as of Kafka's scripts
    # Connect's own versions; other dependencies have older ones
    "org.eclipse.jetty:jetty-security:9.4.56.v20240826",
    "org.eclipse.jetty:jetty-servlet:9.4.56.v20240826",
    "org.reflections:reflections:0.10.2",
)
PROGRAM: Final = Path(__file__).with_name("ChangesToKafka.java")


class SourceDatabase(Postgres):
    """PostgreSQL with logical decoding."""

    def _command(self) -> list[str]:
        return [*super()._command(), "-c", "wal_level=logical"]

    def execute(self, *statements: str) -> str:
        """Run statements, each in a transaction of its own; return what they print, as CSV."""
        command, script = self._psql("-q", "--csv"), ";\n".join(statements)
        done = subprocess.run(command, check=True, capture_output=True, text=True, input=script)
        return done.stdout

    def read_rows(self, query: str, schema: Any) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        text = self.execute(query).encode()
        types = csv.ConvertOptions(column_types=schema, strings_can_be_null=True)
        rows: list[dict[str, Any]] = csv.read_csv(io.BytesIO(text), convert_options=types).to_pylist()
        return rows

    @contextmanager
    def open_session(self) -> Iterator["Session"]:
        """Keep a connection for many transactions."""
        pipe = subprocess.PIPE
        with subprocess.Popen(self._psql(), stdin=pipe, stdout=pipe, stderr=pipe, text=True) as psql:
            yield Session(psql)

    def _psql(self, *options: str) -> list[str]:
        program = [find_postgres_program("psql"), "-X", "-v", "ON_ERROR_STOP=1", *options]
        return [*program, "-h", HOST, "-p", str(self.port), "-U", "lake", "lake"]


class Session:
    """A connection to a database."""

    def __init__(self, psql: "subprocess.Popen[str]") -> None:
        assert psql.stdin is not None
        assert psql.stdout is not None
        assert psql.stderr is not None
        self._input, self._output, self._errors = psql.stdin, psql.stdout, psql.stderr

    def run_transaction(self, statements: list[str]) -> list[str]:
        """Commit statements; return the command tag of each, like `UPDATE 3`. Raises RuntimeError."""
        self._input.write(";\n".join(["BEGIN", *statements, "COMMIT;\n"]))
        self._input.flush()
        tags = list[str]()
        for line in self._output:
            if line == "COMMIT\n":
                return tags[1:]
            tags.append(line.rstrip())
        raise RuntimeError(f"the database refused {statements}: {self._errors.read()}")


class DebeziumEngine:
    """Debezium's engine; started again, it continues where it ended in its folder."""

    def __init__(
        self, database: SourceDatabase, bootstrap: str, folder: Path, more: Mapping[str, str]
    ) -> None:
        settings = {
            "name": "source",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "0",
            "database.hostname": HOST,
            "database.port": str(database.port),
            "database.user": "lake",
            "database.password": "none",
            "database.dbname": "lake",
            "plugin.name": "pgoutput",
            "slot.retry.delay.ms": "1000",  # PostgreSQL may not yet have missed a killed engine
            "decimal.handling.mode": "string",
            **more,
        }
        file = folder / "engine.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.log = folder / "engine.log"
        self._command = [*_compile_program(folder), str(file), bootstrap]
        self._process: SupervisedProcess | None = None

    def start(self) -> None:
        self._process = SupervisedProcess([self._command], self.log, 0.0)

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            self._process.stop()


def make_connect_script() -> str:
    """Return Kafka's script `connect-standalone.sh`, for Connect of the JARs that Debezium depends on."""
    command = [*_java_options(), "-cp", find_jars(*CONNECT), "org.apache.kafka.connect.cli.ConnectStandalone"]
    return f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'


def find_jars(*more: str) -> str:
    """Return the class path of Debezium and its dependencies; download them if needed."""
    return os.pathsep.join(map(str, fetch_jars("debezium", (*DEBEZIUM, *more), is_pinned=False)))


def _java_options() -> list[str]:
    return [str(require_java()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]


def _compile_program(folder: Path) -> list[str]:
    """Return the command that runs the compiled program."""
    jars, classes = find_jars(), str(folder / "classes")
    compiler = [str(require_java()), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    subprocess.run([*compiler, "-cp", jars, "-d", classes, str(PROGRAM)], check=True)
    return [*_java_options(), "-cp", f"{jars}{os.pathsep}{classes}", PROGRAM.stem]
