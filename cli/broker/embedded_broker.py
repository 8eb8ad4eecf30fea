"""A real single-node Kafka in KRaft mode, started from published jars.

Rules: it listens on the loopback only. It is ready when an admin client gets an answer, not before.
It never outlives this process (see `guarded`). Its folder is removed at the end unless the
caller named one or asked to keep it.
"""

import errno
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from trimtab.cli.broker import broker_config as config
from trimtab.cli.errors import BrokerFailed, DataInUse, PortInUse
from trimtab.cli.supervised import Guarded
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.java.jars import Progress, fetch
from trimtab.consumer_sdk.java.java_runtime import require_java

READY_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 20.0  # for data that is kept: time to close the logs
ATTEMPTS: Final = 3  # a free port may be taken before the broker has it
TAIL_LINES: Final = 15
NONE: Final[Mapping[str, str]] = MappingProxyType({})


class EmbeddedBroker:
    """A broker for the length of a `with` block.

    `port` 0 takes a free one; `data` is a folder that is kept and may be used again; `listeners`
    adds listeners by name → security protocol, on free ports of their own; `properties` are
    broker settings that win over the defaults.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        data: Path | None = None,
        keep: bool = False,
        listeners: Mapping[str, str] = NONE,
        properties: Mapping[str, str] = NONE,
        clock: Clock | None = None,
    ) -> None:
        self.port = port
        self.ports: dict[str, int] = {}  # listener → port
        self.folder = data or Path()
        self.pid = 0  # of the JVM
        self._wanted_port = port
        self._cluster = config.cluster_id()
        self._joins: EmbeddedBroker | None = None
        self._data = data
        self._keeps = keep or data is not None
        self._listeners = listeners
        self._properties = properties
        self._clock = clock or SystemClock()
        self._guarded: Guarded | None = None

    def beside(self, properties: Mapping[str, str]) -> "EmbeddedBroker":
        """Return one more broker of this one's cluster, to be started after it and stopped before.

        `properties` give it a node.id above 1.
        """
        other = EmbeddedBroker(properties=properties, clock=self._clock)
        other._cluster, other._joins = self._cluster, self
        return other

    @property
    def bootstrap(self) -> str:
        """Address for `bootstrap.servers`."""
        return self.address(config.PLAINTEXT)

    @property
    def log(self) -> Path:
        """File that holds what the broker says."""
        return self.folder / "broker.log"

    def address(self, listener: str) -> str:
        """Return host:port of a listener."""
        return f"{config.HOST}:{self.ports[listener]}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, progress: Progress | None = None) -> None:
        """Start and wait until it answers.

        Raises PortInUse, DataInUse, SettingError, BrokerFailed; NoJava, WrongJava, MissingExtra,
        JarsUnavailable.
        """
        java = require_java()
        jars = fetch("kafka", config.COORDINATES, excludes=config.EXCLUDES, progress=progress)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._start_once(java, jars)
            except PortInUse:
                if self._wanted_port or attempt == ATTEMPTS:
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop the broker; with data to keep it may close its logs first. May be called twice."""
        guarded, self._guarded = self._guarded, None
        if guarded is None:
            return
        guarded.stop()
        if not self._keeps:
            shutil.rmtree(self.folder, ignore_errors=True)  # in case the guard was killed

    def wait(self) -> None:
        """Return never, unless the broker ends by itself. Raises BrokerFailed."""
        while True:
            self._listen(3600.0)

    def _start_once(self, java: Path, jars: tuple[Path, ...]) -> None:
        names = [config.PLAINTEXT, *self._listeners, config.CONTROLLER]
        self.ports = dict(zip(names, _free_ports(self._wanted_port, len(names)), strict=True))
        self.port = self.ports[config.PLAINTEXT]
        self._prepare_folder()
        plain = {config.PLAINTEXT: "PLAINTEXT", config.CONTROLLER: "PLAINTEXT"}
        values = config.properties(
            self.folder,
            self.ports,
            {**plain, **self._listeners},
            self._properties,
            self._joins.ports[config.CONTROLLER] if self._joins else 0,
        )
        config.write_files(self.folder, values)
        self._guarded = Guarded(
            config.commands(java, jars, self.folder, self._cluster),
            self.log,
            GRACE_SECONDS if self._keeps else 0,
            None if self._keeps else self.folder,
        )
        try:
            self._await_answer()
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
            self.log.write_bytes(b"")
        except OSError as error:
            raise SettingError(f"data folder {self.folder} cannot be used: {error}") from error

    def _await_answer(self) -> None:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - keeps --help fast

        deadline = self._clock.monotonic() + READY_SECONDS
        while not self._open():
            self._listen(0.05)
            if self._clock.monotonic() > deadline:
                raise self._failed(f"the broker does not listen after {READY_SECONDS:.0f} s")
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        while self._clock.monotonic() < deadline:
            with suppress(Exception):  # not ready yet; why is in the broker's log
                if client.list_topics(timeout=1.0).brokers:
                    return
            self._listen(0.0)
        raise self._failed(f"the broker does not answer after {READY_SECONDS:.0f} s")

    def _open(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((config.HOST, self.port)) == 0

    def _listen(self, seconds: float) -> None:
        """Hear the guard for so long. Raises PortInUse, DataInUse, BrokerFailed at an end."""
        assert self._guarded is not None
        self._guarded.hear(seconds)
        self.pid = self._guarded.pid
        if self._guarded.killed:
            raise self._failed("the broker's guard was killed")
        if self._guarded.ended:
            raise self._failed(f"the broker ended with code {self._guarded.code}")

    def _failed(self, what: str) -> PortInUse | DataInUse | BrokerFailed:
        said = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        if any("BindException" in line or "Address already in use" in line for line in said):
            return PortInUse(self.port)
        if any("Failed to acquire lock on file .lock" in line for line in said):
            return DataInUse(self.folder)
        return BrokerFailed(what, "\n".join(_tail(said)))


def _tail(lines: list[str]) -> list[str]:
    """Return the last lines without stack frames, which say little to a user."""
    return [line for line in lines if not line.startswith(("\tat ", "\t..."))][-TAIL_LINES:]


def _free_ports(wanted: int, count: int) -> list[int]:
    """Return `count` different ports, the first one as wanted (0: any). Raises PortInUse."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for i, one in enumerate(sockets):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((config.HOST, wanted if i == 0 else 0))
        return [one.getsockname()[1] for one in sockets]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(wanted) from error
        raise SettingError(f"port {wanted} of 127.0.0.1 cannot be used: {error}") from error
    finally:
        for one in sockets:
            one.close()
