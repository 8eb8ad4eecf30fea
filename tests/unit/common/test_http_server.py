"""HTTP and gRPC endpoints: loopback by default, optional TLS and token."""

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
import pytest

from cluster import keys
from support.page.paged import create_web_server
from trimtab.common import http_server
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.http_server import (
    MAX_CONNECTIONS,
    NO_AUTH,
    EndpointServer,
    HttpEndpoint,
    load_access_policy,
)
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics, serve_metrics
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.keda import externalscaler_pb2 as proto
from trimtab.sidecar.targets.keda.factory import load_tls_credentials
from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount
from trimtab.sidecar.targets.keda.scaler_responses import StalenessLimits
from trimtab.sidecar.targets.keda.scaler_service import (
    SCALER_SERVICE_NAME,
    ExternalScalerService,
    make_server_credentials,
)
from trimtab.sidecar.targets.keda.trigger_metadata import ScaledGroup

TOKEN = "hunter2"  # noqa: S105 - a test value
GOOD = {"bootstrap": "b:1", "group": "g", "capacity": "1 MB/s"}
KEDA = {**GOOD, "target": "keda", "workload": "deployment/x"}
IMAGES = (Path(__file__).parents[3] / "deploy" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificates of a server and its clients, and a token."""
    folder = tmp_path_factory.mktemp("pem")
    keys.signed(folder, "server", "ca", "server", ["localhost", "127.0.0.1"])
    keys.signed(folder, "client", "ca-clients", "client")
    (folder / "token").write_text(f"{TOKEN}\n")
    return folder


def get(port: int, path: str, token: str | None = None, authority: Path | None = None) -> int:
    """Return the status of a GET."""
    if authority is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
    else:
        trust = ssl.create_default_context(cafile=str(authority))
        connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=trust)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_the_web_page_requires_its_token_except_for_probes(pem: Path) -> None:
    """Health and readiness are public, other paths return 401 without the token."""
    server = create_web_server()
    port = server.start("127.0.0.1", 0, load_access_policy(None, None, pem / "token"))
    try:
        assert get(port, "/healthz") == 200
        assert get(port, "/readyz") == 503
        for path in ("/metrics", "/decisions", "/certificate", "/nothing"):
            assert get(port, path) == 401
            assert get(port, path, "hunter3") == 401
        assert get(port, "/metrics", TOKEN) == 200
    finally:
        server.stop()


def test_the_web_page_serves_tls(pem: Path) -> None:
    """Plain HTTP gets no answer, and a silent client blocks no other."""
    server = create_web_server()
    port = server.start("127.0.0.1", 0, load_access_policy(pem / "server.crt", pem / "server.key", None))
    silent = HTTPConnection("127.0.0.1", port, timeout=10)
    silent.connect()
    try:
        assert get(port, "/metrics", authority=pem / "ca.crt") == 200
        with pytest.raises(OSError, match=r".*"):
            get(port, "/metrics")
    finally:
        silent.close()
        server.stop()


def test_consumer_metrics_require_tls_and_token(pem: Path) -> None:
    """The settings of ingest configure the endpoint's TLS and token."""
    config = ingest.parse_ingest_settings(
        {
            "group.id": "g", "lake.warehouse": "lake", "topics": ["t"], "bootstrap.servers": "x:1",
            "trimtab.metrics.port": 0,
            "trimtab.metrics.tls.certificate": str(pem / "server.crt"),
            "trimtab.metrics.tls.key": str(pem / "server.key"),
            "trimtab.metrics.token.file": str(pem / "token"),
        }
    )  # fmt: skip
    with serve_metrics(LakeMetrics(), "127.0.0.1", 0, config.metrics_access) as url:
        assert url.startswith("https://127.0.0.1:")
        port = int(url.split(":")[2].split("/")[0])
        assert get(port, "/metrics", authority=pem / "ca.crt") == 401
        assert get(port, "/metrics", TOKEN, pem / "ca.crt") == 200
        assert get(port, "/", TOKEN, pem / "ca.crt") == 404
        assert get(port, "/healthz", authority=pem / "ca.crt") == 200
    assert TOKEN not in repr(config) + repr(config.metrics_access)


@pytest.mark.parametrize(
    ("header", "may"),
    [
        (f"Bearer {TOKEN}", True), (f"bearer {TOKEN}", True), (f"Bearer  {TOKEN}", True),
        (TOKEN, False), (f"Basic {TOKEN}", False), (f"Bearer{TOKEN}", False), ("Bearer", False),
        (f"Bearer {TOKEN} {TOKEN}", False), ("", False), (None, False),
    ],
)  # fmt: skip
def test_a_token_needs_the_bearer_scheme(pem: Path, header: str | None, may: bool) -> None:  # noqa: FBT001 - a case
    """The token alone, or with another scheme, is not accepted."""
    assert load_access_policy(None, None, pem / "token").is_authorized(header) is may


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (("server.crt", None, None), "belong together"),
        (("server.crt", "client.key", None), "cannot be used: key values mismatch"),
        (("none.crt", "server.key", None), "cannot be used: No such file"),
        ((None, None, "none"), "cannot be read"),
        ((None, None, "empty"), "is empty"),
    ],
)
def test_invalid_access_files_are_rejected(pem: Path, files: tuple[str | None, ...], text: str) -> None:
    """The error names the file, before the endpoint serves."""
    (pem / "empty").write_text("\n")
    with pytest.raises(SettingError, match=text):
        load_access_policy(*(None if name is None else pem / name for name in files))


@pytest.mark.parametrize(
    ("host", "token", "warns"),
    [
        ("127.0.0.1", False, False), ("localhost", False, False), ("::1", False, False),
        ("192.0.2.1", False, True), ("::", False, True), ("host.example", False, True),
        ("192.0.2.1", True, False),
    ],
)  # fmt: skip
def test_an_exposed_endpoint_has_a_warning(pem: Path, host: str, token: bool, warns: bool) -> None:  # noqa: FBT001 - a case
    """An address beyond loopback without TLS and token gives a warning; loopback is the default."""
    access_policy = load_access_policy(None, None, pem / "token" if token else None)
    assert (access_policy.exposure_warning("the page", host) is not None) is warns
    settings = load_settings(None, GOOD)
    assert (settings.host, settings.grpc_host) == ("127.0.0.1", "127.0.0.1")


def test_the_page_is_public_and_its_data_are_not(pem: Path) -> None:
    """The static files need no token: they hold nothing of a group. History and events do."""
    server = create_web_server()
    port = server.start("127.0.0.1", 0, load_access_policy(None, None, pem / "token"))
    try:
        assert [get(port, path) for path in ("/", "/page/page.js")] == [200, 200]
        assert [get(port, path) for path in ("/history", "/events")] == [401, 401]
        assert get(port, "/history", TOKEN) == 200
    finally:
        server.stop()


def test_a_browser_loads_nothing_from_elsewhere() -> None:
    """Every response has the policy; no script or style inside a page runs."""
    server = create_web_server()
    connection = HTTPConnection("127.0.0.1", server.start("127.0.0.1", 0), timeout=10)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        page = answer.read().decode()
    finally:
        connection.close()
        server.stop()
    assert "default-src 'none'; script-src 'self'" in (answer.getheader("Content-Security-Policy") or "")
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert " style=" not in page
    assert "<script>" not in page
    assert "//" not in page.replace("<!doctype", "")


def test_streams_outlive_the_timeout_and_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream lasts longer than a request may; of too many the oldest ends; all end with the server."""
    monkeypatch.setattr(http_server, "HTTP_REQUEST_TIMEOUT_S", 0.3)
    monkeypatch.setattr(http_server, "MAX_STREAMS", 2)
    server = create_web_server()
    port = server.start("127.0.0.1", 0)
    with ExitStack() as stack:
        stack.callback(server.stop)
        streams = []
        for _ in range(3):
            stream = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            stream.sendall(b"GET /events HTTP/1.0\r\n\r\n")
            lines = stack.enter_context(stream.makefile("rb"))
            while not lines.readline().startswith(b"data: "):
                pass
            streams.append(lines)
        assert streams[0].read() == b"\n"  # the rest of its event, and its end
        ends = [threading.Thread(target=lines.read, daemon=True) for lines in streams[1:]]
        for end in ends:
            end.start()
        ends[0].join(1.5)  # twice a second the server ends what is overdue
        assert all(end.is_alive() for end in ends)
        server.stop()
        for end in ends:
            end.join(10)
        assert not any(end.is_alive() for end in ends)


def test_ipv6_is_served() -> None:
    """The IPv6 loopback works like the IPv4 one."""
    server = EndpointServer(
        ("::1", 0), lambda path: (200, "text/plain", path.encode()), load_access_policy(*[None] * 3)
    )
    thread = Thread(target=server.serve_forever)
    thread.start()
    connection = HTTPConnection("::1", server.server_address[1], timeout=10)
    try:
        connection.request("GET", "/here?x=1")
        assert connection.getresponse().read() == b"/here?x=1"
    finally:
        connection.close()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def silent_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that begin a request and do not end it."""
    with ExitStack() as opened:
        slow = [opened.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(count)]
        for connection in slow:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        yield slow


def count_request_threads() -> int:
    """Return the number of threads that serve a request."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


@pytest.mark.parametrize("encrypted", [False, True])
def test_slow_clients_take_no_more_than_their_threads(pem: Path, *, encrypted: bool) -> None:
    """With 200 connections that never end their request, probes are answered and threads stay bounded."""
    files = (pem / "server.crt", pem / "server.key") if encrypted else (None, None)
    before = count_request_threads()
    server = create_web_server()
    port = server.start("127.0.0.1", 0, load_access_policy(*files, None))
    try:
        with silent_connections(port, 200):
            for _ in range(5):
                assert get(port, "/healthz", authority=pem / "ca.crt" if encrypted else None) == 200
            eventually = time.monotonic() + 10
            while count_request_threads() - before > MAX_CONNECTIONS and time.monotonic() < eventually:
                time.sleep(0.05)
            assert count_request_threads() - before <= MAX_CONNECTIONS
    finally:
        server.stop()


def is_closed(connection: socket.socket) -> bool:
    """Send a byte; return whether the server has closed the connection within the socket's timeout."""
    try:
        connection.sendall(b"x")
        return not connection.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def test_as_many_connections_as_the_limit_stay_open() -> None:
    """Only one more closes the oldest."""
    server = create_web_server()
    port = server.start("127.0.0.1", 0)
    before = count_request_threads()
    try:
        with silent_connections(port, MAX_CONNECTIONS) as connections:
            eventually = time.monotonic() + 10
            while count_request_threads() - before < MAX_CONNECTIONS and time.monotonic() < eventually:
                time.sleep(0.05)
            for connection in connections:
                connection.settimeout(0.01)
            assert not any(map(is_closed, connections))
            assert get(port, "/healthz") == 200
            connections[0].settimeout(5.0)
            assert [is_closed(connection) for connection in connections[:2]] == [True, False]
    finally:
        server.stop()


def test_a_request_in_small_pieces_ends_at_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends a byte from time to time holds a thread no longer than a silent one."""
    monkeypatch.setattr(http_server, "HTTP_REQUEST_TIMEOUT_S", 1.0)
    server = create_web_server()
    port = server.start("127.0.0.1", 0)
    try:
        with silent_connections(port, 1) as (slow,):
            slow.settimeout(0.1)
            ends_at = time.monotonic() + 20
            while not is_closed(slow):
                assert time.monotonic() < ends_at
    finally:
        server.stop()


def test_a_large_header_is_refused() -> None:
    """A connection takes no more memory than the limit."""
    server = create_web_server()
    port = server.start("127.0.0.1", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as large:
            large.sendall(
                b"GET /healthz HTTP/1.1\r\n" + b"X: " + b"y" * 9000 + b"\r\n" + b"X: " + b"y" * 9000 + b"\r\n"
            )
            assert large.recv(100).startswith(b"HTTP/1.0 431 ")
        assert get(port, "/healthz") == 200
    finally:
        server.stop()


@contextmanager
def scaler(credentials: Any) -> Iterator[int]:
    """Run the external scaler with credentials; yield its port."""
    settings = load_settings(None, GOOD)
    service = ExternalScalerService(
        KedaReplicaCount(StalenessLimits(3, 30.0), SystemClock()), ScaledGroup.from_settings(settings)
    )
    try:
        yield service.start("127.0.0.1", 0, credentials)
    finally:
        service.stop()


def call_scaler(port: int, channel_credentials: grpc.ChannelCredentials) -> str:
    """Return the error details of a call by KEDA."""
    with grpc.secure_channel(f"127.0.0.1:{port}", channel_credentials) as channel:
        call = channel.unary_unary(
            f"/{SCALER_SERVICE_NAME}/IsActive", proto.ScaledObjectRef.SerializeToString,
            proto.IsActiveResponse.FromString,
        )  # fmt: skip
        with pytest.raises(grpc.RpcError) as caught:
            call(proto.ScaledObjectRef(name="o", namespace="n"), timeout=10)
        return str(caught.value.details())


def test_keda_connects_by_tls_and_client_certificate(pem: Path) -> None:
    """With a client CA, a client without its certificate does not reach the service."""
    ca, crt, key = ((pem / n).read_bytes() for n in ("ca.crt", "client.crt", "client.key"))
    anonymous = grpc.ssl_channel_credentials(ca)
    keda = grpc.ssl_channel_credentials(ca, key, crt)
    files = (pem / "server.crt", pem / "server.key")
    answer = "the sidecar has not completed an iteration yet"
    with scaler(make_server_credentials(*files, None)) as port:
        assert call_scaler(port, anonymous) == answer
    with scaler(make_server_credentials(*files, pem / "ca-clients.crt")) as port:
        assert call_scaler(port, keda) == answer
        assert call_scaler(port, anonymous) != answer


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"grpc-client-ca": "ca.crt"}, "grpc-client-ca needs grpc-tls-certificate"),
        ({"grpc-tls-key": "server.key"}, "belong together"),
    ],
)
def test_incomplete_tls_for_keda_is_rejected(pem: Path, given: dict[str, str], text: str) -> None:
    """A client CA without TLS, or a key without a certificate, is refused."""
    with pytest.raises(SettingError, match=text):
        load_settings(None, {**KEDA, **{name: pem / file for name, file in given.items()}})


def test_keda_and_web_page_have_separate_tls(pem: Path) -> None:
    """KEDA can need a certificate while probes use plain text, and vice versa."""
    files = (str(pem / "server.crt"), str(pem / "server.key"))
    page = dict(zip(("tls-certificate", "tls-key"), files, strict=True))
    grpcs = {f"grpc-{name}": file for name, file in page.items()}
    keda, pages = load_settings(None, {**KEDA, **grpcs}), load_settings(None, {**KEDA, **page})
    assert (keda.access_policy.scheme, load_tls_credentials(keda) is None) == ("http", False)
    assert (pages.access_policy.scheme, load_tls_credentials(pages) is None) == ("https", True)


@pytest.mark.parametrize("name", ["sidecar", "consumer"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_the_images_health_check_needs_no_token(pem: Path, name: str, *, encrypted: bool) -> None:
    """The command in the Dockerfile passes with TLS and a token, and fails without a server."""
    (command,) = re.findall(rf" AS {name}\n(?:(?!FROM).*\n)*HEALTHCHECK .* CMD (.*)", IMAGES)
    files = (pem / "server.crt", pem / "server.key") if encrypted else (None, None)
    with serve_metrics(LakeMetrics(), "127.0.0.1", 0, load_access_policy(*files, pem / "token")) as url:
        assert run_health_check(json.loads(command), url.replace("metrics", "healthz")) == 0
        assert run_health_check(json.loads(command), url) == 1
    assert run_health_check(json.loads(command), url) == 1


def run_health_check(command: list[str], url: str) -> int:
    """Return the exit code of an image's health check."""
    environment = {**os.environ, "TRIMTAB_HEALTH": url}
    return subprocess.run(
        [sys.executable, *command[1:]], env=environment, capture_output=True, check=False
    ).returncode


def test_another_sites_page_asks_for_no_computation() -> None:
    """A path with a query answers the own page and programs, not the page of another site."""
    endpoint = HttpEndpoint({}, query_routes={"/ask": lambda query: (200, "text/plain", query["x"].encode())})
    port = endpoint.start("127.0.0.1", 0, NO_AUTH, "test-http")
    try:
        found = []
        for headers in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "cross-site"}):
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/ask?x=%3Cb%3E", headers=headers)
            answer = connection.getresponse()
            found.append((answer.status, answer.read()))
            connection.close()
    finally:
        endpoint.stop()
    assert found[:2] == [(200, b"<b>")] * 2
    assert found[2][0] == 403
