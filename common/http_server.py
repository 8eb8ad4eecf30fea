"""HTTP endpoints of sidecar and consumer: access policy, health and metrics paths, GET server.

1. An endpoint binds to loopback by default.
2. With a token, every path but the public ones requires `Authorization: Bearer TOKEN`.
3. Health and readiness are public.
4. Each connection has one request, a thread and a timeout for all of it. Beyond `MAX_CONNECTIONS` the
   oldest is closed: slow clients keep no probe from its answer.
5. A request has at most `MAX_REQUEST_BYTES`; bodies are not read.
6. A stream has no end: rule 4's timeout is that of each write. Beyond `MAX_STREAMS` the oldest is closed.
7. A browser loads nothing from elsewhere, and shows no response inside another site's page.
8. A path that takes a query, and so may compute something, refuses requests of another site's page.
"""

import hmac
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import IO, Any, Final, TypeAlias
from urllib.parse import parse_qsl

from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.tls import create_server_context

HttpResponse: TypeAlias = tuple[int, str, bytes]  # status, content type, body
Query: TypeAlias = Mapping[str, str]  # of a URL; of a name that is given twice, the last value
QueryRoute: TypeAlias = Callable[[Query], HttpResponse]
EventStream: TypeAlias = Callable[[Query], Iterator[bytes]]  # of server-sent events, each complete

HTTP_OK: Final = 200
HTTP_UNAUTHORIZED: Final = 401
HTTP_FORBIDDEN: Final = 403
HTTP_NOT_FOUND: Final = 404
HTTP_SERVICE_UNAVAILABLE: Final = 503
HTTP_REQUEST_TIMEOUT_S: Final = 10.0  # bounds a slow client's thread, TLS handshake included
MAX_CONNECTIONS: Final = 32  # at once; probes and scrapes need a few
MAX_STREAMS: Final = 8  # at once: windows that show the page
MAX_REQUEST_BYTES: Final = 16384  # request line and headers; Python's own limits add up to 6.5 MB

METRICS_PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"
READINESS_PATH: Final = "/readyz"
# kubelet probes carry no token, and the answers hold no secret
PUBLIC_PATHS: Final = frozenset({HEALTH_PATH, READINESS_PATH})
EVENT_STREAM_TYPE: Final = "text/event-stream"
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
NO_STREAMS: Final[Mapping[str, EventStream]] = MappingProxyType({})
NO_QUERY_ROUTES: Final[Mapping[str, QueryRoute]] = MappingProxyType({})
OTHER_SITES: Final = frozenset({"cross-site", "same-site"})  # of Sec-Fetch-Site, which browsers send

BEARER_SCHEME: Final = "bearer"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Requirements of an endpoint: TLS, a token, both or none."""

    tls_context: ssl.SSLContext | None = None
    token: str | None = field(default=None, repr=False)  # settings are logged with their repr

    @property
    def scheme(self) -> str:
        """URL scheme of the endpoint."""
        return "http" if self.tls_context is None else "https"

    def is_authorized(self, authorization: str | None) -> bool:
        """Return whether a request with this Authorization header is allowed."""
        if self.token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        has_scheme = scheme.lower() == BEARER_SCHEME  # case-insensitive by RFC 9110
        # compared in constant time, so that response times reveal no prefix of the token
        return hmac.compare_digest(given.strip().encode(), self.token.encode()) and has_scheme

    def exposure_warning(self, endpoint: str, host: str) -> str | None:
        """Return a warning if other machines reach the endpoint without TLS and token."""
        if self.tls_context or self.token or is_loopback(host):
            return None
        return f"{endpoint} at {host} answers every client that reaches it: set TLS or a token"


NO_AUTH: Final = AccessPolicy()


def load_access_policy(certificate: Path | None, key: Path | None, token_file: Path | None) -> AccessPolicy:
    """Return the access policy that these files define. Raises SettingError."""
    if (certificate is None) != (key is None):
        raise SettingError("a tls certificate and its key belong together; give both, or none")
    context = None if certificate is None or key is None else create_server_context(certificate, key)
    return AccessPolicy(context, None if token_file is None else _read_token_file(token_file))


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HttpEndpoint:
    """Serves GET requests of fixed paths on a daemon thread; any other path is a 404.

    `public_paths` need no token, as those of health and readiness. `query_routes` take the URL's query.
    """

    def __init__(
        self,
        routes: Mapping[str, Callable[[], HttpResponse]],
        streams: Mapping[str, EventStream] = NO_STREAMS,
        public_paths: frozenset[str] = frozenset(),
        query_routes: Mapping[str, QueryRoute] = NO_QUERY_ROUTES,
    ) -> None:
        self._routes = routes
        self._query_routes = query_routes
        self._streams = streams
        self._public_paths = PUBLIC_PATHS | public_paths
        self._server: ThreadingHTTPServer | None = None
        self._thread: Thread | None = None

    def handle_path(self, path: str) -> HttpResponse:
        """Return the response for a path, with or without a query."""
        path, _, query = path.partition("?")
        if (query_route := self._query_routes.get(path)) is not None:
            return query_route(parse_query(query))
        if (route := self._routes.get(path)) is not None:
            return route()
        paths = " ".join((*self._routes, *self._query_routes, *self._streams))
        return build_text_response(HTTP_NOT_FOUND, f"the paths are {paths}")

    def start(self, host: str, port: int, access_policy: AccessPolicy, thread_name: str) -> int:
        """Start to serve; return the port (a free one if `port` is 0). Raises OSError."""
        self._server = EndpointServer(
            (host, port),
            self.handle_path,
            access_policy,
            self._streams,
            self._public_paths,
            frozenset(self._query_routes),
        )
        self._thread = Thread(target=self._server.serve_forever, name=thread_name, daemon=True)
        self._thread.start()
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Stop serving and free the port."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def parse_query(text: str) -> Query:
    """Return the names and values of a URL's query."""
    return dict(parse_qsl(text, keep_blank_values=True))


def build_text_response(status: int, text: str) -> HttpResponse:
    """Return a response of one line of text."""
    return status, "text/plain; charset=utf-8", f"{text}\n".encode()


def build_json_response(body: Any) -> HttpResponse:
    """Return a response of JSON; other types are written as text."""
    return build_json_text_response(json.dumps(body, default=str).encode())


def build_json_text_response(text: bytes) -> HttpResponse:
    """Return a response of encoded JSON."""
    return HTTP_OK, "application/json", text


class EndpointServer(ThreadingHTTPServer):
    """A bound server; `respond` maps a path with its query to a response. Raises OSError.

    `own_page_paths` are refused to the pages of other sites (rule 8).
    """

    request_queue_size = 128  # of connections not yet accepted; of Python's 5 the sixth waits a second

    def __init__(
        self,
        address: tuple[str, int],
        respond: Callable[[str], HttpResponse],
        access_policy: AccessPolicy,
        streams: Mapping[str, EventStream] = NO_STREAMS,
        public_paths: frozenset[str] = PUBLIC_PATHS,
        own_page_paths: frozenset[str] = frozenset(),
    ) -> None:
        # socketserver knows IPv4 only, unless the family is set before it binds
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.respond = respond
        self.access_policy = access_policy
        self.streams = streams
        self.public_paths = public_paths
        self.own_page_paths = own_page_paths
        self._clock = SystemClock()
        self._opened_at: dict[socket.socket, float] = {}  # the oldest first
        self._streaming: dict[socket.socket, None] = {}  # the oldest first
        super().__init__(address, _RequestHandler)
        if access_policy.tls_context is not None:
            # The handshake runs in the request's thread: a silent client must not block accept().
            self.socket = access_policy.tls_context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own; beyond the limit close the oldest one."""
        for oldest in list(self._opened_at)[: max(0, len(self._opened_at) + 1 - MAX_CONNECTIONS)]:
            self._abort_connection(oldest)
        self._opened_at[request] = self._clock.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections at the end of their time; called twice a second."""
        # A socket's own timeout starts again with each byte.
        overdue = self._clock.monotonic() - HTTP_REQUEST_TIMEOUT_S
        for request in [r for r, opened_at in list(self._opened_at.items()) if opened_at < overdue]:
            self._abort_connection(request)

    def keep_streaming(self, request: Any) -> None:
        """Let a connection last; beyond the limit close the oldest one that does."""
        for oldest in list(self._streaming)[: max(0, len(self._streaming) + 1 - MAX_STREAMS)]:
            self._abort_connection(oldest)
        self._streaming[request] = None
        self._opened_at.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that has been served."""
        self._opened_at.pop(request, None)
        self._streaming.pop(request, None)
        super().shutdown_request(request)

    def _abort_connection(self, request: socket.socket) -> None:
        self._opened_at.pop(request, None)
        self._streaming.pop(request, None)
        with suppress(OSError):  # closed meanwhile
            # Not TLS's own shutdown: another thread is in the handshake. This one ends its read.
            socket.socket.shutdown(request, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a failed handshake or a closed connection is the client's error."""


class _LimitedReader:
    """Lines of a request, up to `MAX_REQUEST_BYTES`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MAX_REQUEST_BYTES
        self.close = file.close

    def readline(self, size: int) -> bytes:
        """Return the next line. Raises LineTooLong, which http.server answers with 431."""
        if self._left <= 0:
            raise LineTooLong("request")
        line = self._file.readline(min(size, self._left))
        self._left -= len(line)
        return line


class _RequestHandler(BaseHTTPRequestHandler):
    server: EndpointServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = HTTP_REQUEST_TIMEOUT_S

    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _LimitedReader(self.rfile)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        header = self.headers.get("Authorization")
        server = self.server
        if path not in server.public_paths and not server.access_policy.is_authorized(header):
            self._send_response(*build_text_response(HTTP_UNAUTHORIZED, "a token is required"))
        elif path in server.own_page_paths and self.headers.get("Sec-Fetch-Site") in OTHER_SITES:
            self._send_response(*build_text_response(HTTP_FORBIDDEN, "asked by another site's page"))
        elif path in server.streams:
            self._send_stream(server.streams[path](parse_query(query)))
        else:
            self._send_response(*server.respond(self.path))

    def _send_response(self, status: int, content_type: str, body: bytes) -> None:
        self._send_headers(status, content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_stream(self, events: Iterator[bytes]) -> None:
        self.server.keep_streaming(self.request)
        self._send_headers(HTTP_OK, EVENT_STREAM_TYPE)
        self.end_headers()
        for event in events:
            self.wfile.write(event)

    def _send_headers(self, status: int, content_type: str) -> None:
        self.send_response(status)
        if status == HTTP_UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")  # required with a 401 by RFC 9110
        self.send_header("Content-Type", content_type)
        for name, value in SECURITY_HEADERS.items():
            self.send_header(name, value)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its signature
        """Log nothing: scrapes and probes come every few seconds."""


def _read_token_file(file: Path) -> str:
    try:
        token = file.read_text().strip()  # editors end a file with a newline
    except (OSError, UnicodeDecodeError):
        raise SettingError(f"token file {file} cannot be read; give a text file") from None
    if not token:
        raise SettingError(f"token file {file} is empty; write a token into it")
    return token
