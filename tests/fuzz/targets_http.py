"""Requests to the HTTP endpoints of sidecar and consumer."""

from functools import cache
from io import BytesIO
from types import SimpleNamespace
from typing import Any, Final, cast

from support.page.paged import create_web_server
from trimtab.common import http_server
from trimtab.common.http_server import AccessPolicy, EndpointServer

TOKEN: Final = "hunter2"  # noqa: S105 - a test value
PATHS: Final = ("/healthz", "/readyz", "/metrics", "/decisions", "/certificate", "/nothing?a=b")
REQUESTS: Final = [
    *(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode() for path in PATHS),
    b"GET /metrics HTTP/1.0\r\nAccept: text/plain\r\n\r\n",
    b"GET /metrics\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /a HTTP/1.1\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
]
SEEDS: Final = {"serve_request": REQUESTS}


class _Connection:
    """A connection that has the whole request at once."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.sent = b""

    def makefile(self, *_: object) -> BytesIO:
        return BytesIO(self._data)

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def settimeout(self, _: float) -> None:
        """Accept any timeout."""


def serve_request(data: bytes) -> None:
    """Every request has an answer of the server's, or none; nothing but the public paths without a token."""
    connection = _Connection(data)
    handler = http_server._RequestHandler
    handler(cast("Any", connection), ("127.0.0.1", 1), _server())
    assert b"200 OK" not in connection.sent or TOKEN.encode() in data or _is_public(data)


def _is_public(data: bytes) -> bool:
    return any(path.encode() in data for path in http_server.PUBLIC_PATHS)


@cache
def _server() -> EndpointServer:
    web_server = create_web_server()
    policy = AccessPolicy(token=TOKEN)
    server = SimpleNamespace(
        respond=web_server.handle_path,
        access_policy=policy,
        streams={},
        public_paths=http_server.PUBLIC_PATHS,
        own_page_paths=frozenset({"/what-if"}),
    )
    return cast("EndpointServer", server)
