"""An HTTP server that answers as Prometheus's query API does, with what a test gives it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs


@dataclass
class PrometheusServer:
    """The answer to come, and the requests that came."""

    url: str = ""
    status: int = 200
    body: bytes = b""
    queries: list[str] = field(default_factory=list[str])
    tokens: list[str | None] = field(default_factory=list[str | None])

    def tell(self, *samples: tuple[Mapping[str, str], str]) -> None:
        """Answer with a vector of labels and values."""
        result = [{"metric": dict(labels), "value": [1.5, value]} for labels, value in samples]
        data = {"resultType": "vector", "result": result}
        self.body = json.dumps({"status": "success", "data": data}).encode()


@contextmanager
def serve_prometheus() -> Iterator[PrometheusServer]:
    """Serve on a free port of this host."""
    state = PrometheusServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            is_api = self.path == "/api/v1/query"
            state.queries.extend(form["query"])
            state.tokens.append(self.headers["Authorization"])
            self.send_response(state.status if is_api else 404)
            self.send_header("Content-Length", str(len(state.body)))
            self.end_headers()
            self.wfile.write(state.body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
