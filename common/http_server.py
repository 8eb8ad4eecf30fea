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
from trimtab.common.kafka_security.tls import create_server_context

HttpResponse: TypeAlias = tuple[int, str, bytes]
"""Status, content type, body."""

HTTP_REQUEST_TIMEOUT_S: Final = 10.0
"""Seconds that a client has for its request."""

BEARER_SCHEME: Final = "bearer"
"""The scheme of a token; schemes are told apart whatever their case (RFC 9110)."""

UNAUTHORIZED: Final = 401


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What is asked of who wants an answer: TLS, a token, both or nothing."""

    tls_context: ssl.SSLContext | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def scheme(self) -> str:
        """Return the beginning of the endpoint's address."""
        return "http" if self.tls_context is None else "https"

    def is_authorized(self, authorization: str | None) -> bool:
        """Tell whether a request with this header may have its answer."""
        if self.token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        bears = scheme.lower() == BEARER_SCHEME
        return hmac.compare_digest(given.strip().encode(), self.token.encode()) and bears

    def exposure_warning(self, what: str, host: str) -> str | None:
        """Return what to say of an endpoint that everybody can read; None where that is not so."""
        if self.tls_context or self.token or is_loopback(host):
            return None
        return f"{what} at {host} answers everybody who reaches it: give it TLS or a token"


NO_AUTH: Final = AccessPolicy()
"""Asks for nothing."""


def load_access_policy(
    certificate: Path | None, key: Path | None, token_file: Path | None
) -> AccessPolicy:
    """Return the guard that these files make. Raises SettingError."""
    if (certificate is None) != (key is None):
        raise SettingError("a tls certificate and its key belong together; give both, or none")
    context = (
        None if certificate is None or key is None else create_server_context(certificate, key)
    )
    return AccessPolicy(context, None if token_file is None else _read_token_file(token_file))


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def create_http_server(
    address: tuple[str, int],
    respond: Callable[[str], HttpResponse],
    access_policy: AccessPolicy,
    public_paths: frozenset[str] = frozenset(),
) -> ThreadingHTTPServer:
    """Return a server that is bound, for a thread to run. Raises OSError.

    `respond` takes a path; those of `public_paths` need no token.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = HTTP_REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            may = path in public_paths or access_policy.is_authorized(
                self.headers.get("Authorization")
            )
            status, kind, body = respond(path) if may else _unauthorized_response()
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
    if access_policy.tls_context is not None:
        server.socket = access_policy.tls_context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    return server


def _unauthorized_response() -> HttpResponse:
    return UNAUTHORIZED, "text/plain; charset=utf-8", b"a token is needed\n"


def _read_token_file(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise SettingError(f"token file {file} cannot be read; give a text file") from None
    if not token:
        raise SettingError(f"token file {file} is empty; write a token into it")
    return token
