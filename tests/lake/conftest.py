"""Lake writers over a consumer of listed records; the lake, Spark and the writer are real."""

import json
import re
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.offset_reset import OffsetReset
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.settings import LakeConfig, parse_lake_config
from trimtab.consumer_sdk.lake.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter


@dataclass
class FakeMessage:
    """The parts of confluent-kafka's message that the writer reads."""

    where: TopicPartition
    at: int
    payload: bytes | None
    name: bytes | None = b"k"
    heads: list[tuple[str, bytes | None]] | None = None

    def topic(self) -> str:
        return self.where.topic

    def partition(self) -> int:
        return self.where.partition

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_700_000_000_000 + self.at)

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.payload

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.heads

    def error(self) -> None:
        return None


@dataclass
class FakeConsumer:
    """A consumer of listed records; it keeps positions and records its commits."""

    log: dict[TopicPartition, list[bytes | None]]
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    callbacks: deque[Callable[[], None]] = field(default_factory=deque)
    started: set[TopicPartition] = field(default_factory=set)
    resets: list[OffsetReset] = field(default_factory=list)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[FakeMessage]:  # noqa: ARG002 - the interface
        while self.callbacks:
            self.callbacks.popleft()()
        found: list[FakeMessage] = []
        for where, offset in sorted(self.positions.items()):
            values = self.log[where][offset : offset + num_messages - len(found)]
            found += [FakeMessage(where, offset + i, value) for i, value in enumerate(values)]
            self.positions[where] = offset + len(values)
        return found

    def incremental_assign(self, partitions: Sequence[RawPartition]) -> None:
        for p in partitions:
            self.positions[TopicPartition(p.topic, p.partition)] = p.offset

    def incremental_unassign(self, partitions: Sequence[RawPartition]) -> None:
        for p in partitions:
            self.positions.pop(TopicPartition(p.topic, p.partition), None)

    def pop_offset_resets(self) -> list[OffsetReset]:
        found, self.resets = self.resets, []
        return found

    def batch_max_age_s(self) -> float | None:
        return None

    def commit(self, *, offsets: Sequence[RawPartition], asynchronous: bool = True) -> None:  # noqa: ARG002
        self.committed |= {TopicPartition(p.topic, p.partition): p.offset for p in offsets}

    def assign(self, writer: LakeWriter, *partitions: TopicPartition) -> None:
        """Assign these partitions, as a rebalance does."""
        writer.on_assign(self, [RawPartition(*p) for p in partitions])
        for p in partitions:
            self.positions.setdefault(p, self.committed.get(p, 0))

    def revoke(self, writer: LakeWriter, *partitions: TopicPartition) -> None:
        """Revoke these partitions, as a rebalance does."""
        for p in partitions:
            self.positions.pop(p, None)
        writer.on_revoke(self, [RawPartition(*p) for p in partitions])


@pytest.fixture(scope="session")
def fakes() -> SimpleNamespace:
    return SimpleNamespace(Consumer=FakeConsumer, Message=FakeMessage)


@pytest.fixture
def lake(request: pytest.FixtureRequest, iceberg: IcebergLake) -> SparkLake:
    """The Iceberg lake of the run, or the lake whose fixture parametrizes a test."""
    fixture = getattr(request, "param", None)
    return request.getfixturevalue(fixture) if fixture else iceberg


@pytest.fixture
def spark(lake: SparkLake) -> Any:
    return lake.spark


@pytest.fixture
def config(namespace: str, warehouse: Path) -> Callable[..., LakeConfig]:
    """Build a configuration with tables in this test's namespace; batches flush at once by default."""

    def make(**changes: Any) -> LakeConfig:
        base = {
            "group.id": "g",
            "enable.auto.commit": False,
            "lake.warehouse": str(warehouse),
            "lake.table": namespace + ".{topic}",
            "batch.max.age": 0,
            "lake.flush.timeout": "120 s",  # a shared machine may be slow
        }
        return parse_lake_config(base | {name.replace("_", "."): value for name, value in changes.items()})

    return make


@pytest.fixture
def writers(
    lake: SparkLake, config: Callable[..., LakeConfig]
) -> Iterator[Callable[..., tuple[FakeConsumer, LakeWriter]]]:
    """Create (consumer, writer) pairs over a log; close the open ones at the end."""
    made: list[LakeWriter] = []

    def make(log: dict[Any, list[bytes | None]], **changes: Any) -> tuple[FakeConsumer, LakeWriter]:
        crash, metrics = changes.pop("crash", print), changes.pop("metrics", None)
        consumer = FakeConsumer({TopicPartition(*p): values for p, values in log.items()})
        stepped = type("SteppedWriter", (LakeWriter,), {"_reach_step": staticmethod(crash)})
        writer = stepped(consumer, config(**changes), lake=lake, metrics=metrics)
        made.append(writer)
        return consumer, writer

    yield make
    for writer in made:
        writer.__exit__(RuntimeError, None, None)


@pytest.fixture
def rows(spark: Any) -> Callable[[str], list[Any]]:
    """Return a table's (topic, partition, offset), sorted."""

    def read(table: str) -> list[Any]:
        found = spark.table(table).select("topic", "partition", "offset").collect()
        return sorted(tuple(row) for row in found)

    return read


@dataclass
class FakeRegistry:
    """A schema registry with Confluent's HTTP interface over a dictionary; `down` makes it answer 503."""

    url: str = ""
    login: str = ""
    down: bool = False
    requested_paths: list[str] = field(default_factory=list)
    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)

    def add(self, subject: str, schema: Any, kind: str = "AVRO", refers: Any = ()) -> int:
        """Register a schema, like POST /subjects/…/versions; return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "references": list(refers)}
        body |= {} if kind == "AVRO" else {"schemaType": kind}
        if body not in self.schemas:
            self.schemas.append(body)
        number = self.schemas.index(body) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def respond(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of a GET."""
        by_id = re.fullmatch(r"/schemas/ids/(\d+)", path)
        by_version = re.fullmatch(r"/subjects/([^/]+)/versions/(\w+)", path)
        if by_id:
            number = int(by_id[1])
            if not 0 < number <= len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, self.schemas[number - 1]
        if by_version:
            ids = self.subjects.get(by_version[1], [])
            version = len(ids) if by_version[2] == "latest" else int(by_version[2])
            if not 0 < version <= len(ids):
                return 404, {"error_code": 40402, "message": "Version not found."}
            number = ids[version - 1]
            named = {"subject": by_version[1], "version": version, "id": number}
            return 200, named | self.schemas[number - 1]
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


class RegistryHandler(BaseHTTPRequestHandler):
    """Serves HTTP for the registry of a subclass."""

    registry: FakeRegistry

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.registry.requested_paths.append(self.path)
        status, body = self._refusal() or self.registry.respond(url.path)
        if body.get("schemaType") == "PROTOBUF" and "format" not in parse_qs(url.query):
            body = body | {"schema": 'syntax = "proto3";'}
        self._send(status, body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        subject = self.path.split("/")[2]
        number = self.registry.add(
            subject, body["schema"], body.get("schemaType", "AVRO"), body.get("references", ())
        )
        self._send(200, {"id": number})

    def _refusal(self) -> tuple[int, dict[str, Any]] | None:
        expected = b64encode(self.registry.login.encode()).decode()
        if self.registry.login and self.headers.get("Authorization") != f"Basic {expected}":
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        if self.registry.down:
            return 503, {"error_code": 50301, "message": "not now"}
        return None

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry for one test, on a free port."""
    registry = FakeRegistry()
    handler = type("Handler", (RegistryHandler,), {"registry": registry})

    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
