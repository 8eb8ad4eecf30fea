"""The largest group that a broker stores: members and partitions in one group metadata record.

The coordinator writes a group's subscriptions and assignments as one record to __consumer_offsets at each
rebalance, and ends the rebalance with an error if the record exceeds the topic's max.message.bytes. Each
member joins on a connection of its own, with the bytes of the assignor plugin: it owns its share of one
topic's partitions, scattered at random.

    python -m benchmarks.sidecar.bench_group_size                 # 2,000 x 10,000 and 1,000 x 100,000
    python -m benchmarks.sidecar.bench_group_size --search 8000   # and the largest group of 5 partitions each
"""

import socket
import struct
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException
from confluent_kafka import TopicPartition as RawPartition
from kafka.protocol.consumer import JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from benchmarks.harness import parser, result
from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.rebalance.consumer_protocol import encode_assignments
from trimtab.assignor.rebalance.user_data import AssignmentUserData
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.sidecar.diagnostics.doctor.checks import MemberMetadata
from trimtab.sidecar.diagnostics.doctor.size_checks import check_group_size, estimate_group_record

TOPIC: Final = "orders"
PROTOCOL: Final = "trimtab"
OFFSETS_TOPIC: Final = "__consumer_offsets"
SESSION_TIMEOUT_MS: Final = 60_000
GENERATION: Final = 41
FINGERPRINT: Final = "0" * 16
JOIN_VERSION: Final = 3  # before KIP-394, which asks for a second request
SYNC_VERSION: Final = 1
BROKERS: Final[Mapping[str, Mapping[str, str]]] = {
    "defaults": {},
    "zstd": {"offsets.topic.compression.codec": "4"},
    "10 MB": {"message.max.bytes": "10485760"},
    # for a test: a group of 100 breaks if it is not compressed
    "30 kB": {"message.max.bytes": "30000"},
    "30 kB, zstd": {"message.max.bytes": "30000", "offsets.topic.compression.codec": "4"},
}
SIZES: Final = ("2000x10000", "1000x100000")
START: Final = {"group.initial.rebalance.delay.ms": "3000"}  # all members join in one round


@dataclass(slots=True)
class Member:
    """A connection, and what the coordinator said."""

    connection: socket.socket
    subscription: bytes
    id: str = ""
    generation: int = -1

    def send(self, request: Any, version: int) -> None:
        request.with_header(client_id="orders-consumer")
        self.connection.sendall(request.encode(version=version, header=True, framed=True))

    def receive(self, response_class: Any, version: int) -> Any:
        (size,) = struct.unpack(">i", self._read(4))
        return response_class.decode(self._read(size)[4:], version=version)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.connection.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)


def share_partitions(members: int, partitions: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the owner of each partition: equal counts, scattered."""
    owners = np.arange(partitions) % members
    np.random.default_rng(7).shuffle(owners)
    return owners


def encode_subscription(instance: str, assignment: bytes) -> bytes:
    """Return the subscription of a member that holds its assignment, as the plugin writes it."""
    assignor = TrimtabAssignor("steady", 2.3e6, instance=instance)
    assignor.read_subscription = lambda: None  # then it is what was assigned last
    assignor.on_assignment(ConsumerProtocolAssignment.decode(assignment), GENERATION)
    encoded: bytes = assignor.metadata([TOPIC]).encode()
    return encoded


def encode_member_assignments(owners: np.ndarray[Any, Any], members: int) -> list[bytes]:
    index = PartitionIndex.from_partitions(TopicPartition(TOPIC, n) for n in range(len(owners)))
    number = index.number.astype(np.int64)
    data = AssignmentUserData(FINGERPRINT).encode()
    return encode_assignments(index, owners[number].astype(np.int32), [data] * members)


@contextmanager
def connect_member(bootstrap: str, metadata: Sequence[bytes]) -> Generator[list[Member]]:
    """Yield a connected member for each subscription."""
    host, port = bootstrap.rsplit(":", 1)
    with ExitStack() as stack:
        yield [
            Member(stack.enter_context(socket.create_connection((host, int(port)), 120)), data)
            for data in metadata
        ]


def join_members(members: Sequence[Member], group: str) -> Member:
    """Join until all are in one generation; return the leader."""
    leader: Member | None = None
    while True:
        for member in members:
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL, metadata=member.subscription)
            request = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=SESSION_TIMEOUT_MS,
                member_id=member.id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            member.send(request, JOIN_VERSION)
        for member in members:
            response = member.receive(JoinGroupResponse, JOIN_VERSION)
            member.id, member.generation = response.member_id, response.generation_id
            if len(response.members) == len(members):  # only the leader's response lists them
                leader = member
        if leader is not None:
            return leader


def synchronize_members(
    members: Sequence[Member], leader: Member, group: str, encoded: Sequence[bytes]
) -> int:
    """Send the leader's assignments; return the coordinator's error code, 0 if the group is stable."""
    placed = [
        SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.id, assignment=data)
        for member, data in zip(members, encoded, strict=True)
    ]
    for member in members:
        own = placed if member is leader else []
        request = SyncGroupRequest(
            group_id=group, generation_id=member.generation, member_id=member.id, assignments=own
        )
        member.send(request, SYNC_VERSION)
    return max(member.receive(SyncGroupResponse, SYNC_VERSION).error_code for member in members)


def store_group(bootstrap: str, members: int, partitions: int, broker: Mapping[str, str]) -> dict[str, Any]:
    """Form a group; return whether the broker stores it, the size of its record, and the doctor's finding."""
    group = f"bench-{uuid.uuid4().hex[:8]}"
    encoded = encode_member_assignments(share_partitions(members, partitions), members)
    metadata = [encode_subscription(f"orders-consumer-{n}", data) for n, data in enumerate(encoded)]
    started = monotonic()
    with connect_member(bootstrap, metadata) as joined:
        leader = join_members(joined, group)
        code = synchronize_members(joined, leader, group, encoded)
    figures = {"stored": code == 0, "error_code": code, "seconds": round(monotonic() - started, 1)}
    sent = sum(map(len, metadata)) + sum(map(len, encoded))
    described = {m.id: MemberMetadata(m.subscription, data) for m, data in zip(joined, encoded, strict=True)}
    limit, codec = broker.get("message.max.bytes"), broker.get("offsets.topic.compression.codec")
    doctor = check_group_size(described, partitions, limit, codec).level
    estimate = estimate_group_record(described, partitions)
    figures |= {"sent_bytes": sent, "estimated_bytes": estimate, "doctor": doctor.value}
    return figures | {"record_bytes": record_size(bootstrap, group)}


def record_size(bootstrap: str, group: str) -> int:
    """Return the size of the group's largest record in __consumer_offsets; 0 without one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(OFFSETS_TOPIC, timeout=10).topics[OFFSETS_TOPIC].partitions
        consumer.assign([RawPartition(OFFSETS_TOPIC, p, OFFSET_BEGINNING) for p in partitions])
        left, largest = set(partitions), 0
        while left:
            for message in consumer.consume(100, 1.0):
                if message.error() is not None:
                    left.discard(message.partition() or 0)
                elif group.encode() in (message.key() or b""):
                    largest = max(largest, len(message.value() or b""))
        return largest
    finally:
        consumer.close()


def search_largest_group(bootstrap: str, upper: int, broker: Mapping[str, str]) -> int:
    """Return the most members, of 5 partitions each, that the broker stores, to 2 %."""
    lower = 0
    while upper - lower > max(1, upper // 50):
        middle = (lower + upper) // 2
        if store_group(bootstrap, middle, 5 * middle, broker)["stored"]:
            lower = middle
        else:
            upper = middle
    return lower


def create_offsets_topic(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 2})
    deadline = monotonic() + 60
    while True:
        try:
            consumer.committed([RawPartition(TOPIC, 0)], timeout=30)  # its coordinator creates the topic
            break
        except KafkaException:
            if monotonic() > deadline:
                raise
    consumer.close()


def main() -> None:
    arguments = parser("The largest group that a broker stores.")
    arguments.add_argument("--sizes", nargs="*", default=SIZES, help="MEMBERSxPARTITIONS")
    arguments.add_argument("--brokers", nargs="*", default=[*BROKERS][:3], choices=[*BROKERS])
    arguments.add_argument("--search", type=int, default=0, help="bisect below this number of members")
    options = arguments.parse_args()
    figures: dict[str, Any] = {}
    for name in options.brokers:
        properties = BROKERS[name]
        with EmbeddedBroker(properties={**START, **properties}) as broker:
            create_offsets_topic(broker.bootstrap)
            figures[name] = {
                size: store_group(broker.bootstrap, *map(int, size.split("x")), properties)
                for size in options.sizes
            }
            if options.search:
                largest = search_largest_group(broker.bootstrap, options.search, properties)
                figures[name]["largest_members_of_5_partitions"] = largest
    result(figures)


if __name__ == "__main__":
    main()
