"""A small Iceberg REST catalog whose answers to commits may be lost: 503 after the commit was made.

It holds the tables' metadata locations in memory, and writes metadata files beside the data. What it
speaks is the part of Iceberg's REST specification that a writer uses; pyiceberg's models do the work.
"""

import json
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

from pydantic import BaseModel, Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

HOST: Final = "127.0.0.1"


class _CreateRequest(BaseModel):
    name: str
    table_schema: Schema = Field(alias="schema")
    partition_spec: PartitionSpec | None = Field(alias="partition-spec", default=None)
    write_order: SortOrder | None = Field(alias="write-order", default=None)
    properties: dict[str, str] = Field(default_factory=dict)


class _CommitRequest(BaseModel):
    requirements: tuple[TableRequirement, ...] = ()
    updates: tuple[TableUpdate, ...] = ()


class AnswerError(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.body = {"error": {"message": message, "type": kind, "code": code}}


class RestCatalog:
    """The catalog, served from threads until `close`."""

    def __init__(self, warehouse: Path) -> None:
        self.lost = 0  # answers so far
        self._warehouse = warehouse
        self._namespaces: set[str] = set()
        self._tables: dict[tuple[str, str], tuple[str, TableMetadata]] = {}
        self._lock = Lock()
        self._losing = 0
        self._served: dict[tuple[str | int, ...], Callable[..., Any]] = {
            ("GET", 0, "config"): lambda _: {"defaults": {}, "overrides": {}},
            ("POST", 0, "namespaces"): self._create_namespace,
            ("GET", 1, "namespaces"): self._load_namespace,
            ("GET", 1, "namespaces", "tables"): self._list,
            ("POST", 1, "namespaces", "tables"): self._create,
            ("GET", 2, "namespaces", "tables"): self._load,
            ("POST", 2, "namespaces", "tables"): self._commit,
            ("POST", 2, "namespaces", "tables", "metrics"): lambda *_: None,
        }
        """By method, number of names in the path, and the words before them."""
        self._server = ThreadingHTTPServer((HOST, 0), partial(_Handler, self))
        self._thread = Thread(target=self._server.serve_forever, name="catalog", daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        """The catalog's address."""
        return f"http://{HOST}:{self._server.server_port}"

    def location(self, namespace: str, name: str) -> str | None:
        """Return where the newest metadata of a table is."""
        found = self._tables.get((namespace, name))
        return None if found is None else found[0]

    @contextmanager
    def losing_answers(self) -> Generator[None]:
        """Answer 503 to every commit after it was made, while in the block."""
        self._losing += 1
        try:
            yield
        finally:
            self._losing -= 1

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: list[str], body: bytes) -> Any:
        """Return the answer's JSON, None for an empty one. Raises AnswerError."""
        kinds, names = tuple(path[::2]), path[1::2]
        served = self._served.get(("GET" if method == "HEAD" else method, len(names), *kinds))
        if served is None:
            raise AnswerError(400, "BadRequestException", f"{method} {'/'.join(path)}: not served here")
        return served(*names, body)

    def _create_namespace(self, body: bytes) -> Any:
        name = json.loads(body)["namespace"][0]
        with self._lock:
            if name in self._namespaces:
                raise AnswerError(409, "AlreadyExistsException", f"namespace {name} exists")
            self._namespaces.add(name)
        return {"namespace": [name], "properties": {}}

    def _load_namespace(self, name: str, _body: bytes = b"") -> Any:
        if name not in self._namespaces:
            raise AnswerError(404, "NoSuchNamespaceException", f"there is no namespace {name}")
        return {"namespace": [name], "properties": {}}

    def _list(self, namespace: str, _body: bytes) -> Any:
        tables = sorted(name for where, name in self._tables if where == namespace)
        return {"identifiers": [{"namespace": [namespace], "name": name} for name in tables]}

    def _create(self, namespace: str, body: bytes) -> Any:
        request = _CreateRequest.model_validate_json(body)
        metadata = new_table_metadata(
            request.table_schema,
            request.partition_spec or PartitionSpec(),
            request.write_order or SortOrder(),
            f"{self._warehouse.as_uri()}/{namespace}/{request.name}",
            request.properties,
        )
        with self._lock:
            if (namespace, request.name) in self._tables:
                raise AnswerError(409, "AlreadyExistsException", f"table {request.name} exists")
            return self._store(namespace, request.name, metadata)

    def _load(self, namespace: str, name: str, _body: bytes = b"") -> Any:
        if (namespace, name) not in self._tables:
            raise AnswerError(404, "NoSuchTableException", f"there is no table {namespace}.{name}")
        location, metadata = self._tables[namespace, name]
        return _answer_table(location, metadata)

    def _commit(self, namespace: str, name: str, body: bytes) -> Any:
        request = _CommitRequest.model_validate_json(body)
        with self._lock:
            self._load(namespace, name)
            metadata = self._tables[namespace, name][1]
            try:
                for requirement in request.requirements:
                    requirement.validate(metadata)
            except CommitFailedException as error:
                raise AnswerError(409, "CommitFailedException", str(error)) from error
            answer = self._store(namespace, name, update_table_metadata(metadata, request.updates))
        if self._losing:
            self.lost += 1
            raise AnswerError(503, "ServiceUnavailableException", "injected: the answer was lost")
        return answer

    def _store(self, namespace: str, name: str, metadata: TableMetadata) -> Any:
        folder = self._warehouse / namespace / name / "metadata"
        file = folder / f"{uuid.uuid4()}.metadata.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(metadata.model_dump_json(exclude_none=True))
        except OSError as error:  # the disk is full: nothing was committed
            raise AnswerError(500, "InternalServerError", str(error)) from error
        self._tables[namespace, name] = (str(file), metadata)
        return _answer_table(str(file), metadata)


def _answer_table(location: str, metadata: TableMetadata) -> Any:
    body = json.loads(metadata.model_dump_json(exclude_none=True))
    return {"metadata-location": location, "metadata": body, "config": {}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, catalog: RestCatalog, *arguments: Any) -> None:
        self._catalog = catalog
        super().__init__(*arguments)

    def _answer(self) -> None:
        path = self.path.partition("?")[0].strip("/").split("/")[1:]  # without "v1"
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            found = self._catalog.answer(self.command, path, body)
            self._send(204 if found is None else 200, found)
        except AnswerError as error:
            self._send(error.code, error.body)

    do_GET = do_POST = do_HEAD = _answer  # noqa: N815 - the names of the interface

    def _send(self, code: int, body: Any) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the interface
