"""An HTTP proxy in front of one server: counts requests, and spoils those that a fault picks.

A fault is a pair: `picks` says which requests it concerns, `treat` what happens to them. Signatures of
S3 cover the address that the client called, which is passed on unchanged.
"""

import socket
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final, TypeAlias

HOST: Final = "127.0.0.1"
PRECONDITION_FAILED: Final = 412
_HOP_BY_HOP: Final = frozenset({"connection", "expect", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the client sent it."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def has_header(self, name: str) -> bool:
        return any(name == key.lower() for key, _ in self.headers)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the server, or of a fault."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


Picks: TypeAlias = Callable[[Request], bool]
Treat: TypeAlias = Callable[["Exchange"], Answer | None]
"""Returns what the client gets; None: its connection is cut."""


class Exchange:
    """One request, and the way to the server."""

    def __init__(self, request: Request, target: int) -> None:
        self.request = request
        self._target = target

    def forward(self) -> Answer:
        """Send the request; return the server's answer. Raises OSError, HTTPException."""
        connection = self._send(self.request.body)
        try:
            found = connection.getresponse()
            return Answer(found.status, tuple(found.getheaders()), found.read())
        finally:
            connection.close()

    def forward_half(self) -> None:
        """Send the head and half of the body, then cut the connection."""
        self._send(self.request.body[: len(self.request.body) // 2]).close()

    def _send(self, body: bytes) -> HTTPConnection:
        connection = HTTPConnection(HOST, self._target, timeout=60)
        connection.putrequest(
            self.request.method, self.request.path, skip_host=True, skip_accept_encoding=True
        )
        for name, value in self.request.headers:
            if name.lower() not in {*_HOP_BY_HOP, "content-length"}:
                connection.putheader(name, value)
        if self.request.method in ("PUT", "POST") or self.request.body:
            connection.putheader("Content-Length", str(len(self.request.body)))
        connection.endheaders(body)
        return connection


def refuse(status: int, code: str) -> Treat:
    """Answer as S3 does with an error, without the server."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    return lambda _: Answer(status, (("Content-Type", "application/xml"),), body)


def cut_upload(exchange: Exchange) -> None:
    """Cut the connection in the middle of the upload."""
    exchange.forward_half()


def lose_answer(exchange: Exchange) -> None:
    """Cut the connection after the server did what was asked."""
    exchange.forward()


def ignore_condition(exchange: Exchange) -> Answer:
    """Answer a refused conditional upload as a store does that knows no conditions."""
    answer = exchange.forward()
    return Answer(200, (("ETag", '"0"'),), b"") if answer.status == PRECONDITION_FAILED else answer


def any_request(_request: Request) -> bool:
    return True


def is_upload(request: Request) -> bool:
    return request.method == "PUT"


def is_conditional_upload(request: Request) -> bool:
    return request.method == "PUT" and request.has_header("if-none-match")


class Proxy:
    """Serves from threads until `close`."""

    def __init__(self, target: int) -> None:
        self.requests: Counter[str] = Counter()  # by method
        self.spoiled: Counter[str] = Counter()  # by the name of the fault
        self._target = target
        self._faults: dict[str, tuple[Picks, Treat]] = {}
        self._lock = Lock()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server((HOST, 0), handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="proxy", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    @contextmanager
    def spoiling(self, name: str, picks: Picks, treat: Treat) -> Generator[None]:
        """Treat the requests that `picks` names, while in the block."""
        self._faults[name] = (picks, treat)
        try:
            yield
        finally:
            self._faults.pop(name, None)

    def answer(self, request: Request) -> Answer | None:
        """Return what the client gets, None if its connection is cut."""
        treat = self._treatment(request)
        try:
            return treat(Exchange(request, self._target))
        except (OSError, HTTPException):  # the server is gone
            return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _treatment(self, request: Request) -> Treat:
        with self._lock:
            self.requests[request.method] += 1
            for name, (picks, treat) in list(self._faults.items()):
                if picks(request):
                    self.spoiled[name] += 1
                    return treat
        return Exchange.forward


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that were killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    disable_nagle_algorithm = True
    proxy: Proxy

    def handle_expect_100(self) -> bool:
        """Answer at once: a client waits a second for it before each upload."""
        answered = super().handle_expect_100()
        self.wfile.flush()
        return answered

    def _serve(self) -> None:
        answer = self.proxy.answer(
            Request(self.command, self.path, tuple(self.headers.items()), self._read_body())
        )
        if answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._write(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the names of the interface

    def _write(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        names = {name.lower() for name, _ in answer.headers}
        for name, value in answer.headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if "content-length" not in names and answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            return b"".join(iter(self._read_chunk, b""))
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _read_chunk(self) -> bytes:
        size = int(self.rfile.readline().partition(b";")[0], 16)
        data = self.rfile.read(size)
        self.rfile.readline()
        return data

    def log_message(self, *_: Any) -> None: ...
