"""An OAuth token endpoint of tests, whose answers a test can replace."""

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any

SECRET = "hunter2:+%"  # noqa: S105 - a test value
Answer = tuple[int, dict[str, str], bytes] | Iterable[bytes]
"""Status, headers and content; or the parts of an answer as they are."""


class TokenEndpoint(ThreadingHTTPServer):
    """Answers each POST by `answer(number)`; `requests` are headers and bodies."""

    daemon_threads = True

    def __init__(self, answer: Callable[[int], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.numbers = count(1)
        self.scheme = "http"

    @property
    def url(self) -> str:
        """URL of the endpoint."""
        return f"{self.scheme}://127.0.0.1:{self.server_port}/token?key=hunter2"

    def settings(self, **more: str) -> dict[str, Any]:
        """Return a client's settings, without those of the broker."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "limited",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.token.endpoint.url": self.url,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


class _Handler(BaseHTTPRequestHandler):
    server: TokenEndpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((dict(self.headers), body))
        answer = self.server.answer(next(self.server.numbers))
        if not isinstance(answer, tuple):
            with suppress(OSError):  # the client may have gone
                self.wfile.writelines(answer)
            return
        status, headers, content = answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


@contextmanager
def serve_tokens(
    answer: Callable[[int], Answer], context: ssl.SSLContext | None = None
) -> Iterator[TokenEndpoint]:
    """Run an endpoint, with a context over TLS."""
    with TokenEndpoint(answer) as endpoint:
        if context is not None:
            endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
            endpoint.scheme = "https"
        thread = Thread(target=endpoint.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield endpoint
        finally:
            endpoint.shutdown()
            thread.join()
