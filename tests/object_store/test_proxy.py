"""The proxy passes requests on, counts them, and spoils those that a fault picks."""

from collections.abc import Iterator
from http.client import HTTPConnection, RemoteDisconnected
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest

from object_store.proxy import Proxy, any_request, cut_upload, is_upload, lose_answer, refuse


class Store(BaseHTTPRequestHandler):
    """Keeps objects in memory."""

    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        data = self.rfile.read(size)
        if len(data) == size:
            self.objects[self.path] = data
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.objects[self.path])

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def objects() -> dict[str, bytes]:
    return {}


@pytest.fixture
def proxy(objects: dict[str, bytes]) -> Iterator[Proxy]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Kept", (Store,), {"objects": objects}))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    made = Proxy(server.server_port)
    yield made
    made.close()
    server.shutdown()
    thread.join()
    server.server_close()


def send(proxy: Proxy, method: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = HTTPConnection(urlsplit(proxy.address).netloc, timeout=10)
    try:
        connection.request(method, "/lake/one", body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_requests_are_passed_on_and_counted(proxy: Proxy, objects: dict[str, bytes]) -> None:
    """Body and answer arrive unchanged."""
    assert send(proxy, "PUT", b"rows")[0] == 200
    assert send(proxy, "GET") == (200, b"rows")
    assert objects == {"/lake/one": b"rows"}
    assert proxy.requests == {"PUT": 1, "GET": 1}


def test_a_refused_request_does_not_reach_the_server(proxy: Proxy, objects: dict[str, bytes]) -> None:
    """It is answered as S3 answers, until the fault is over."""
    with proxy.spoiling("slow", any_request, refuse(503, "SlowDown")):
        status, body = send(proxy, "PUT", b"rows")
    assert status == 503
    assert b"<Code>SlowDown</Code>" in body
    assert not objects
    assert proxy.spoiled == {"slow": 1}
    assert send(proxy, "PUT", b"rows")[0] == 200


def test_an_upload_is_cut_in_the_middle(proxy: Proxy, objects: dict[str, bytes]) -> None:
    """The server has half of it, and keeps nothing."""
    with proxy.spoiling("cut", is_upload, cut_upload), pytest.raises(RemoteDisconnected):
        send(proxy, "PUT", b"rows" * 100)
    assert not objects


def test_an_answer_is_lost(proxy: Proxy, objects: dict[str, bytes]) -> None:
    """The server has done what was asked, and the client does not know."""
    with proxy.spoiling("lost", is_upload, lose_answer), pytest.raises(RemoteDisconnected):
        send(proxy, "PUT", b"rows")
    assert objects == {"/lake/one": b"rows"}
