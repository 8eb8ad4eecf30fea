"""Brokers that can be killed; they restart on the same ports with the same data.

With three, the first one is the only controller and is never killed; topics have three replicas, of which
two must be in sync. Clients of a link log in as `USER`, who has the rights of `RIGHTS`, the administrator
and everything else on the plain listener has all.
"""

import os
import random
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaPythonPartition

from faults.check import record_number
from faults.proxy import HOST, Network
from faults.schedule import SESSION
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.errors import BrokerDataInUseError, EmbeddedBrokerError, PortInUseError

K = TypeVar("K")
R = TypeVar("R")
TRIES: Final = 5
# another fault may have killed or cut off the broker that has the request
LOST: Final = {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN}
# what a repeated request is told if the first one was carried out and its answer was lost
DONE: Final = {
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.INVALID_PARTITIONS,
}
PARTITIONS: Final = 6
SILENCE_SECONDS: Final = 120.0  # without a record: the checker gives up
BROKER_PORTS: Final = range(20_000, 32_000)
HEARTBEAT_MS: Final = 250
# of groups of the new protocol (KIP-848), whose timeouts and patterns are the broker's
GROUP_PROPERTIES: Final = {
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.regex.refresh.interval.ms": "10000",
    "group.consumer.session.timeout.ms": str(int(SESSION * 1000)),
}
USER: Final = "ingest"
PASSWORD: Final = "a-password"  # noqa: S105 - a test value
PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
RIGHTS: Final = (
    (ResourceType.TOPIC, AclOperation.READ),
    (ResourceType.TOPIC, AclOperation.DESCRIBE),
    (ResourceType.GROUP, AclOperation.READ),
)
THREE_REPLICAS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "broker.session.timeout.ms": "3000",  # until a killed broker's partitions get other leaders
}


class Broker:
    """Embedded brokers with a listener for each link of the network."""

    def __init__(self, data: Path, links: int, count: int = 1) -> None:
        self._ports = _free_ports(count)
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in self._ports)
        self.network = Network(links * count)
        self.links = links
        self._names = [f"LINK{number}" for number in range(links)]
        self._data = data
        self._pause = Event()
        self._lock = Lock()
        self._brokers: list[EmbeddedBroker] = []
        for number in range(count):
            self._brokers.append(self._start(number))
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._grant(RIGHTS)

    @property
    def link_addresses(self) -> list[str]:
        """The addresses of all brokers behind each link."""
        ports = self.network.ports
        return [",".join(f"{HOST}:{port}" for port in ports[n :: self.links]) for n in range(self.links)]

    def link_numbers(self, link: int) -> range:
        """Return the numbers in the network of a link to each broker."""
        return range(link, self.links * len(self._brokers), self.links)

    def kill(self, seconds: float) -> None:
        """Kill the broker, or of three the two that are no controller, and restart after some seconds."""
        numbers = range(1, len(self._brokers)) if len(self._brokers) > 1 else range(1)
        with self._lock:
            for number in numbers:
                with suppress(ProcessLookupError):
                    os.kill(self._brokers[number].pid, signal.SIGKILL)
                self._brokers[number].stop()
            self._pause.wait(seconds)
            for number in numbers:
                self._brokers[number] = self._start(number)

    def close(self) -> None:
        with self._lock:
            for broker in reversed(self._brokers):  # the controller last
                broker.stop()
            self.network.close()

    def make(self, topic: str, partitions: int = PARTITIONS) -> None:
        """Create a topic."""
        self._request(lambda: self.admin.create_topics([NewTopic(topic, partitions, -1)]))

    def drop(self, topic: str) -> None:
        """Delete a topic."""
        self._request(lambda: self.admin.delete_topics([topic]))

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic this number of partitions."""
        self._request(lambda: self.admin.create_partitions([NewPartitions(topic, partitions)]))

    def take_right(self, number: int, seconds: float, prefix: str) -> None:
        """Take one of the rights on resources of a prefix away, and give it back after some seconds."""
        kind, operation = RIGHTS[number % len(RIGHTS)]
        same = AclBindingFilter(
            kind,
            prefix,
            ResourcePatternType.PREFIXED,
            f"User:{USER}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        self._request(lambda: self.admin.delete_acls([same]))
        self._pause.wait(seconds)
        self._grant([(kind, operation)])

    def _grant(self, rights: Sequence[tuple[Any, Any]]) -> None:
        bindings = [
            AclBinding(
                *(kind, prefix, ResourcePatternType.PREFIXED, f"User:{USER}", "*"),
                *(operation, AclPermissionType.ALLOW),
            )
            for kind, operation in rights
            for prefix in ("fire", "trimtab")
        ]
        self._request(lambda: self.admin.create_acls(bindings))

    def _request(self, send: Callable[[], Mapping[K, Future[R]]]) -> dict[K, R]:
        """Return the results of an administrator's request, repeated while the broker is away."""
        for attempt in range(1, TRIES + 1):
            try:
                return {key: future.result(60) for key, future in send().items()}
            except (KafkaException, TimeoutError) as error:
                code = KafkaError._TIMED_OUT if isinstance(error, TimeoutError) else error.args[0].code()
                if attempt > 1 and code in DONE:
                    break
                if attempt == TRIES or code not in LOST:
                    raise
            self._pause.wait(5.0)
        return {}

    def _start(self, number: int) -> EmbeddedBroker:
        for attempt in range(1, TRIES + 1):
            broker = self._create(number)
            try:
                broker.start()
            except (EmbeddedBrokerError, BrokerDataInUseError, PortInUseError):
                if attempt == TRIES:
                    raise
                self._pause.wait(1.0)
            else:
                first = number * self.links
                self.network.lead_to(first, [broker.ports[name] for name in self._names])
                return broker
        raise AssertionError

    def _create(self, number: int) -> EmbeddedBroker:
        listeners = dict.fromkeys(self._names, "SASL_PLAINTEXT")
        data, port = self._data / str(number + 1), self._ports[number]
        properties = self._properties(number)
        if number:
            return self._brokers[0].create_peer(properties, port, data=data, listeners=listeners)
        return EmbeddedBroker(port, data=data, listeners=listeners, properties=properties)

    def _properties(self, number: int) -> Mapping[str, str]:
        ports = self.network.ports[number * self.links :]
        links = [f"{name}://{HOST}:{port}" for name, port in zip(self._names, ports, strict=False)]
        login = f'{PLAIN_LOGIN} required user_{USER}="{PASSWORD}";'
        return {
            "node.id": str(number + 1),
            "advertised.listeners": ",".join([f"PLAINTEXT://{HOST}:{self._ports[number]}", *links]),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            **GROUP_PROPERTIES,
            **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": login for name in self._names},
            **(THREE_REPLICAS if len(self._ports) > 1 else {}),
        }


def _free_ports(count: int) -> list[int]:
    """Return free ports below those that the kernel gives to outgoing connections.

    A killed broker needs its port again, which any client may get meanwhile if it is one of those.
    """
    candidates = random.SystemRandom().sample(BROKER_PORTS, len(BROKER_PORTS))
    return list(islice(filter(_is_free, candidates), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def read_numbers(bootstrap: str, topic: str, partitions: int, isolation: str) -> dict[tuple[int, int], int]:
    """Return the number of each record that a plain consumer gets, by partition and offset."""
    consumer = _create_reader(bootstrap, isolation)
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        return read_to_ends(consumer, _read_ends(bootstrap, topic, partitions))
    finally:
        consumer.close()


def read_to_ends(consumer: Any, ends: Mapping[int, int]) -> dict[tuple[int, int], int]:
    """Return the numbers of the records up to these ends. Raises TimeoutError if a log does not go on."""
    found: dict[tuple[int, int], int] = {}
    left = {partition for partition, end in ends.items() if end}
    deadline = monotonic() + SILENCE_SECONDS
    while left:
        for message in consumer.consume(5000, 1.0):
            partition, offset = message.partition(), message.offset()
            if message.error() is None:
                found[partition, offset] = record_number(message.key())
                deadline = monotonic() + SILENCE_SECONDS
            # Other errors pass. An end below the log's is before a transaction that is still open.
            elif message.error().code() == KafkaError._PARTITION_EOF and offset >= ends[partition]:
                left.discard(partition)
        if left and monotonic() > deadline:
            raise TimeoutError(f"nothing more of partition {min(left)} was read for {SILENCE_SECONDS:g} s")
    return found


def read_with_kafka_python(
    bootstrap: str, topic: str, partitions: int, isolation: str
) -> set[tuple[int, int]]:
    """Return the records that a client gets that shares no code with librdkafka."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
    ends = {
        KafkaPythonPartition(topic, p): end for p, end in _read_ends(bootstrap, topic, partitions).items()
    }
    consumer.assign(list(ends))
    consumer.seek_to_beginning()
    found: set[tuple[int, int]] = set()
    while any(consumer.position(p) < end for p, end in ends.items()):
        for records in consumer.poll(1000, max_records=5000).values():
            found |= {(record.partition, record.offset) for record in records}
    consumer.close()
    return found


def _create_reader(bootstrap: str, isolation: str) -> Consumer:
    config = {"bootstrap.servers": bootstrap, "group.id": "checker", "isolation.level": isolation}
    return Consumer({**config, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0})


def _read_ends(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """Return the end of each log; a reader of committed records would get the last stable offset."""
    reader = _create_reader(bootstrap, "read_uncommitted")
    try:
        asked = (TopicPartition(topic, p) for p in range(partitions))
        return {p.partition: reader.get_watermark_offsets(p, SILENCE_SECONDS)[1] for p in asked}
    finally:
        reader.close()
