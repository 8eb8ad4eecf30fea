"""Our own HTTP endpoints: for whom they answer, and a small server of GET for them.

Rules: who is not told otherwise listens on the loopback. With a token each path asks for it
(`Authorization: Bearer …`) but for those that are free: a kubelet's probe cannot have one. Tokens
are compared in constant time. TLS is shaken in the thread of the request, so that one who connects
and says nothing holds nobody up.
"""

import hmac
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeAlias

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.tls import server_context

Answer: TypeAlias = tuple[int, str, bytes]
"""Status, content type, body."""

PATIENCE: Final = 10.0
"""Seconds that a client has for its request."""

BEARER: Final = "bearer"
"""The scheme of a token; schemes are told apart whatever their case (RFC 9110)."""

UNAUTHORIZED: Final = 401


@dataclass(frozen=True, slots=True)
class Guard:
    """What is asked of who wants an answer: TLS, a token, both or nothing."""

    context: ssl.SSLContext | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def scheme(self) -> str:
        """Return the beginning of the endpoint's address."""
        return "http" if self.context is None else "https"

    def admits(self, authorization: str | None) -> bool:
        """Tell whether a request with this header may have its answer."""
        if self.token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        bears = scheme.lower() == BEARER
        return hmac.compare_digest(given.strip().encode(), self.token.encode()) and bears

    def warning(self, what: str, host: str) -> str | None:
        """Return what to say of an endpoint that everybody can read; None where that is not so."""
        if self.context or self.token or is_loopback(host):
            return None
        return f"{what} at {host} answers everybody who reaches it: give it TLS or a token"


OPEN: Final = Guard()
"""Asks for nothing."""


def guard(certificate: Path | None, key: Path | None, token_file: Path | None) -> Guard:
    """Return the guard that these files make. Raises SettingError."""
    if (certificate is None) != (key is None):
        raise SettingError("a tls certificate and its key belong together; give both, or none")
    context = None if certificate is None or key is None else server_context(certificate, key)
    return Guard(context, None if token_file is None else _token(token_file))


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def endpoint(
    address: tuple[str, int],
    respond: Callable[[str], Answer],
    guarded: Guard,
    free: frozenset[str] = frozenset(),
) -> ThreadingHTTPServer:
    """Return a server that is bound, for a thread to run. Raises OSError.

    `respond` takes a path; those of `free` need no token.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            may = path in free or guarded.admits(self.headers.get("Authorization"))
            status, kind, body = respond(path) if may else _stranger()
            self.send_response(status)
            if not may:
                self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its signature
            """Stay quiet: scrapes are no news."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Stay quiet: who speaks no TLS, or hangs up, is no news either."""

    server = Server(address, Handler)
    if guarded.context is not None:
        server.socket = guarded.context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    return server


def _stranger() -> Answer:
    return UNAUTHORIZED, "text/plain; charset=utf-8", b"a token is needed\n"


def _token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise SettingError(f"token file {file} cannot be read; give a text file") from None
    if not token:
        raise SettingError(f"token file {file} is empty; write a token into it")
    return token
