"""Servers of the rig: versitygw, Iceberg's REST catalog, PostgreSQL. They end with this process."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final, Self

from object_store import programs
from trimtab.cli.supervised import SupervisedProcess
from trimtab.consumer_sdk.java.java_runtime import require_java

HOST: Final = "127.0.0.1"
BUCKET: Final = "lake"
REGION: Final = "eu-central-1"
ACCESS_KEY, SECRET_KEY = "trimtab-tests", "not-a-secret-of-anyone"
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": REGION,
}
"""Environment of a client of the object store."""

START_SECONDS: Final = 60.0  # on a busy machine
POSTGRES_FOLDERS: Final = "/usr/lib/postgresql/*/bin"  # Debian's


class Server:
    """A process with a port on loopback; `kill` and `start` keep the port."""

    def __init__(self, log: Path, environ: Mapping[str, str] | None = None, port: int | None = None) -> None:
        self.port = port or free_port()
        self._log = log
        self._environ = environ or {}
        self._process: SupervisedProcess | None = None

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._process = SupervisedProcess([self._command()], self._log, 0.0, environ=self._environ)
        _wait_until(self._answers, lambda: self._log.read_text(errors="replace")[-2000:])

    def kill(self) -> None:
        """Kill the process; what it has stored stays."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        return _status_of(self.port, "/") is not None


class Gateway(Server):
    """versitygw: a bucket is a folder, an object a file of the same name. `readonly` refuses every write.

    `access_log` gets a line per request; `users` is the folder of an `ExpiringUser`.
    """

    def __init__(
        self,
        folder: Path,
        log: Path,
        *,
        readonly: bool = False,
        port: int | None = None,
        access_log: Path | None = None,
        users: Path | None = None,
    ) -> None:
        super().__init__(log, {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}, port)
        self.bucket = folder / BUCKET
        self.bucket.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._readonly = readonly
        self._access_log = access_log
        self._users = users

    def _command(self) -> Sequence[str]:
        program = str(programs.find_gateway())
        options = ["--port", f"{HOST}:{self.port}", "--region", REGION, "--quiet", "--health", "/health"]
        options += ["--readonly"] if self._readonly else []
        options += ["--access-log", str(self._access_log)] if self._access_log else []
        options += ["--iam-dir", str(self._users), "--iam-cache-disable"] if self._users else []
        return [program, *options, "posix", str(self._folder)]

    def _answers(self) -> bool:
        return _status_of(self.port, "/health") == 200


class RestCatalogServer(Server):
    """Iceberg's REST catalog; it keeps the tables' names in an SQLite file, so a restart loses none."""

    def __init__(self, folder: Path, log: Path, endpoint: str, port: int | None = None) -> None:
        self.database = folder / "catalog.db"
        super().__init__(log, {**CREDENTIALS, **self._settings(endpoint)}, port)
        self._environ = {**self._environ, "CATALOG_REST_PORT": str(self.port)}

    def _settings(self, endpoint: str) -> dict[str, str]:
        return {
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": f"jdbc:sqlite:{self.database}?journal_mode=WAL&busy_timeout=15000",
            "CATALOG_WAREHOUSE": f"s3://{BUCKET}/warehouse",
            "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
            "CATALOG_S3_ENDPOINT": endpoint,
            "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        }

    def _command(self) -> Sequence[str]:
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
        jars = os.pathsep.join(map(str, programs.rest_server_jars()))
        server = "org.apache.iceberg.rest.RESTCatalogServer"
        return [str(require_java()), *options, "-cp", jars, server]

    def _answers(self) -> bool:
        return _status_of(self.port, "/v1/config") == 200


class Postgres(Server):
    """PostgreSQL with an empty database `lake`; it runs as its own user if we are root."""

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self._folder = Path(tempfile.mkdtemp(prefix="trimtab-postgres-"))  # its user may enter it
        self._run("initdb", "--auth=trust", "--username=lake", "--no-sync", str(self._folder / "data"))

    @property
    def jdbc(self) -> str:
        return f"jdbc:postgresql://{HOST}:{self.port}/lake"

    def start(self) -> None:
        super().start()
        self._run(
            "createdb", "-h", HOST, "-p", str(self.port), "-U", "lake", "--maintenance-db=postgres", "lake"
        )

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _command(self) -> Sequence[str]:
        data, sockets = str(self._folder / "data"), str(self._folder)
        options = ["-D", data, "-h", HOST, "-p", str(self.port), "-k", sockets, "-c", "fsync=off"]
        return self._as_user("postgres", *options)

    def _answers(self) -> bool:
        ready = self._as_user("pg_isready", "-q", "-h", HOST, "-p", str(self.port))
        return subprocess.run(ready, check=False).returncode == 0

    def _run(self, program: str, *words: str) -> None:
        command = self._as_user(program, *words)
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder)

    def _as_user(self, program: str, *words: str) -> list[str]:
        command = [find_postgres_program(program), *words]
        if os.geteuid() != 0:
            return command
        shutil.chown(self._folder, "postgres")  # it refuses to run as root
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]


def find_postgres_program(name: str) -> str:
    """Return a program of PostgreSQL. Raises FileNotFoundError."""
    for folder in sorted(Path("/").glob(POSTGRES_FOLDERS.lstrip("/")), reverse=True):
        if (folder / name).is_file():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(
            f"{name} is missing: install PostgreSQL, on Debian: apt-get install postgresql"
        )
    return found


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def _status_of(port: int, path: str) -> int | None:
    connection = HTTPConnection(HOST, port, timeout=5)
    with suppress(OSError, HTTPException):
        connection.request("GET", path)
        return connection.getresponse().status
    return None


def _wait_until(condition: Callable[[], bool], describe: Callable[[], str]) -> None:
    pause, deadline = Event(), monotonic() + START_SECONDS
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"no answer within {START_SECONDS:.0f} s:\n{describe()}")
        pause.wait(0.05)
