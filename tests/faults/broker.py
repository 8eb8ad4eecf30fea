"""A broker that can be killed; it restarts on the same ports with the same data."""

import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from faults.proxy import HOST, Network
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.errors import BrokerDataInUseError, EmbeddedBrokerError, PortInUseError

TRIES: Final = 5
PARTITIONS: Final = 6


class Broker:
    """An embedded broker with a listener for each link of the network."""

    def __init__(self, data: Path, links: int) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self._port = probe.getsockname()[1]
        self.bootstrap = f"{HOST}:{self._port}"
        self.network = Network(links)
        self._names = [f"LINK{number}" for number in range(links)]
        self._data = data
        self._pause = Event()
        self._lock = Lock()
        self._broker = self._start()
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def kill(self, seconds: float) -> None:
        """Kill the broker (SIGKILL) and restart it after some seconds."""
        with self._lock:
            with suppress(ProcessLookupError):
                os.kill(self._broker.pid, signal.SIGKILL)
            self._broker.stop()
            self._pause.wait(seconds)
            self._broker = self._start()

    def close(self) -> None:
        with self._lock:
            self._broker.stop()
            self.network.close()

    def make(self, topic: str) -> None:
        """Create a topic."""
        for future in self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            future.result(60)

    def drop(self, topic: str) -> None:
        """Delete a topic."""
        for future in self.admin.delete_topics([topic]).values():
            future.result(60)

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition."""
        specs = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        futures = self.admin.list_offsets(specs)
        return {p.partition: int(future.result(60).offset) for p, future in futures.items()}

    def _start(self) -> EmbeddedBroker:
        for attempt in range(1, TRIES + 1):
            broker = EmbeddedBroker(
                self._port,
                data=self._data,
                listeners=dict.fromkeys(self._names, "PLAINTEXT"),
                properties={"advertised.listeners": ",".join(self._advertised())},
            )
            try:
                broker.start()
            except (EmbeddedBrokerError, BrokerDataInUseError, PortInUseError):
                if attempt == TRIES:
                    raise
                self._pause.wait(1.0)
            else:
                self.network.lead_to([broker.ports[name] for name in self._names])
                return broker
        raise AssertionError

    def _advertised(self) -> Sequence[str]:
        links = zip(self._names, self.network.ports, strict=True)
        return [f"PLAINTEXT://{self.bootstrap}", *(f"{name}://{HOST}:{port}" for name, port in links)]
