"""A single-node Kafka broker in KRaft mode, started from published jars.

1. It listens on loopback only.
2. It is ready once an admin client gets an answer.
3. It never outlives this process (`SupervisedProcess`).
4. Its folder is removed at the end unless the caller names one or keeps it.
"""

import errno
import fcntl
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from confluent_kafka.admin import AdminClient

from trimtab.broker_plugin.plugin_jar import ASSIGNOR_CLASS, cache_plugin_jar
from trimtab.cli.broker import broker_config as config
from trimtab.cli.broker.start_progress import StartProgress, read_start_effort
from trimtab.cli.errors import BrokerDataInUseError, EmbeddedBrokerError, PortInUseError
from trimtab.cli.supervised import SupervisedProcess
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.java.jars import ProgressCallback, fetch_jars
from trimtab.consumer_sdk.java.java_runtime import require_java

BROKER_STOP_GRACE_S: Final = 20.0  # for kept data: closed logs need no recovery at the next start
FREE_PORT_ATTEMPTS: Final = 3  # a free port may be taken before the broker has it
LOG_TAIL_LINES: Final = 15
MAX_LOG_LINE: Final = 200  # characters; Kafka prints whole tables of records in one line
SLOW_START_ADVICE: Final = (
    "is the machine busy, or short of memory? End other programs and run the command again"
)
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class EmbeddedBroker:
    """A broker that runs for the length of a `with` block.

    `port` 0 takes a free one; `data` is kept and may be reused; `listeners` maps the names of further
    listeners, on free ports, to security protocols; `properties` override the defaults: with
    those of `broker_config.ASSIGNOR_PROPERTIES` the broker has Trimtab's assignor plugin.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        data: Path | None = None,
        keep: bool = False,
        listeners: Mapping[str, str] = NO_SETTINGS,
        properties: Mapping[str, str] = NO_SETTINGS,
        clock: Clock | None = None,
    ) -> None:
        self.port = port
        self.ports: dict[str, int] = {}  # listener → port
        self.folder = data or Path()
        self.pid = 0  # of the JVM
        self._requested_port = port
        self._cluster_id = config.generate_cluster_id()
        self._joined_broker: EmbeddedBroker | None = None
        self._data, self._keeps_data = data, keep or data is not None
        self._listeners = listeners
        self._properties = properties
        self._clock = clock or SystemClock()
        self._process: SupervisedProcess | None = None

    def create_peer(
        self,
        properties: Mapping[str, str],
        port: int = 0,
        *,
        data: Path | None = None,
        listeners: Mapping[str, str] = NO_SETTINGS,
    ) -> "EmbeddedBroker":
        """Return another broker of this cluster, whose `properties` set a node.id above 1."""
        # this one is the only controller: start the other one later, and stop it earlier
        other = EmbeddedBroker(port, data=data, listeners=listeners, properties=properties, clock=self._clock)
        other._cluster_id = self._cluster_id
        other._joined_broker = self
        return other

    @property
    def bootstrap(self) -> str:
        """Address for `bootstrap.servers`."""
        return self.listener_address(config.PLAINTEXT_LISTENER)

    @property
    def log_file(self) -> Path:
        """The broker's log file."""
        return self.folder / "broker.log"

    def listener_address(self, listener: str) -> str:
        """Return host:port of a listener."""
        return f"{config.BROKER_HOST}:{self.ports[listener]}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, progress: ProgressCallback | None = None) -> None:
        """Start and wait until the broker answers.

        Raises PortInUseError, BrokerDataInUseError, SettingError, EmbeddedBrokerError,
        JavaNotFoundError, UnsupportedJavaError, MissingExtraError, JarsUnavailableError.
        """
        java = require_java()
        excluded = config.EXCLUDED_COORDINATES
        jars = fetch_jars("kafka", config.KAFKA_COORDINATES, excludes=excluded, progress=progress)
        if ASSIGNOR_CLASS in self._properties.get("group.consumer.assignors", ""):
            jars = (*jars, cache_plugin_jar(jars))
        for attempt in range(1, FREE_PORT_ATTEMPTS + 1):
            try:
                self._start_once(java, jars)
            except PortInUseError:
                if self._requested_port or attempt == FREE_PORT_ATTEMPTS:
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop the broker; kept data is closed in order first. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.stop()
        if not self._keeps_data:
            shutil.rmtree(self.folder, ignore_errors=True)  # in case the supervisor was killed

    def wait(self) -> None:
        """Block until the broker ends by itself. Raises EmbeddedBrokerError."""
        while True:
            self._check_running(3600.0)

    def _start_once(self, java: Path, jars: tuple[Path, ...]) -> None:
        plain, control = config.PLAINTEXT_LISTENER, config.CONTROLLER_LISTENER
        protocols = {plain: "PLAINTEXT", **self._listeners, control: "PLAINTEXT"}
        self.ports = dict(zip(protocols, _free_ports(self._requested_port, len(protocols)), strict=True))
        self.port = self.ports[plain]
        self._prepare_folder()
        joined = self._joined_broker.ports[control] if self._joined_broker else 0
        values = config.build_properties(self.folder, self.ports, protocols, self._properties, joined)
        config.write_config_files(self.folder, values)
        self._process = SupervisedProcess(
            config.build_commands(java, jars, self.folder, self._cluster_id),
            self.log_file,
            BROKER_STOP_GRACE_S if self._keeps_data else 0,
            None if self._keeps_data else self.folder,
        )
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise

    def _prepare_folder(self) -> None:
        if self._data is None:
            self.folder = Path(tempfile.mkdtemp(prefix="trimtab-broker-"))
        else:
            self.folder = self._data.absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_unlocked()
            self.log_file.write_bytes(b"")
        except OSError as error:
            raise SettingError(f"data folder {self.folder} cannot be used: {error}") from error

    def _check_unlocked(self) -> None:
        # Kafka itself takes its lock after it has written to the metadata log, which ends the other broker.
        lock_file = self.folder / "data" / ".lock"
        if lock_file.exists():
            with lock_file.open("r+b") as lock:
                try:
                    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise BrokerDataInUseError(self.folder) from None

    def _await_ready(self) -> None:
        progress = StartProgress(self._clock.monotonic())
        # a plain connect first: librdkafka waits ever longer between attempts
        while not self._is_listening():
            self._check_starting(progress, 0.05)
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        while not _answers(client):
            self._check_starting(progress, 0.0)

    def _check_starting(self, progress: StartProgress, seconds: float) -> None:
        self._check_running(seconds)
        effort = read_start_effort(self.pid, self.log_file)
        if failure := progress.explain_failure(self._clock.monotonic(), effort):
            raise self._diagnose(f"the broker did not start: {failure}; {SLOW_START_ADVICE}")

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((config.BROKER_HOST, self.port)) == 0

    def _check_running(self, seconds: float) -> None:
        """Wait for a status change. Raises the errors of `_diagnose` if the broker has ended."""
        assert self._process is not None
        self._process.read_status(seconds)
        self.pid = self._process.pid
        if self._process.supervisor_killed:
            raise self._diagnose("the broker's supervisor was killed")
        if self._process.has_ended:
            raise self._diagnose(f"the broker ended with code {self._process.exit_code}")

    def _diagnose(self, what: str) -> PortInUseError | BrokerDataInUseError | EmbeddedBrokerError:
        # the exit code does not tell the causes apart: only the log does
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        if any("BindException" in line or "Address already in use" in line for line in lines):
            return PortInUseError(self.port)
        if any("Failed to acquire lock on file .lock" in line for line in lines):
            return BrokerDataInUseError(self.folder)
        return EmbeddedBrokerError(what, "\n".join(_log_tail(lines)))


def _answers(client: AdminClient) -> bool:
    with suppress(Exception):  # not ready yet; the reason is in the broker's log
        return bool(client.list_topics(timeout=1.0).brokers)
    return False


def _log_tail(lines: list[str]) -> list[str]:
    tail = [line for line in lines if not line.startswith(("\tat ", "\t..."))][-LOG_TAIL_LINES:]
    return [line if len(line) <= MAX_LOG_LINE else f"{line[:MAX_LOG_LINE]} …" for line in tail]


def _free_ports(requested: int, count: int) -> list[int]:
    """Return `count` free ports, the first as requested (0: any). Raises PortInUseError."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for i, one in enumerate(sockets):
            # as Kafka binds it: a port in TIME_WAIT after a stopped broker is free
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((config.BROKER_HOST, requested if i == 0 else 0))
        return [one.getsockname()[1] for one in sockets]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(requested) from error
        raise SettingError(f"port {requested} of 127.0.0.1 cannot be used: {error}") from error
    finally:
        for one in sockets:
            one.close()
