"""A schema registry with Confluent's HTTP interface, in a thread."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class FakeRegistry:
    """A schema registry with Confluent's HTTP interface over a dictionary; `down` makes it answer 503."""

    url: str = ""
    login: str = ""
    down: bool = False
    forbidden: set[int] = field(default_factory=set)  # ids of schemas
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
            if number in self.forbidden:
                return 403, {"error_code": 40301, "message": "User is denied operation Read on Subject"}
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


@contextmanager
def serve_registry() -> Iterator[FakeRegistry]:
    """Serve an empty registry on a free port."""
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
