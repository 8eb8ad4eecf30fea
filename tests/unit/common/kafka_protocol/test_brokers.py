"""Connections to brokers that are away, slow, hostile or have moved, by a server that answers as told."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ticking import Ticking
from trimtab.common.clock import SystemClock
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.apis import Api
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.kafka_protocol.connection import (
    LONGEST_PAUSE_S,
    MAX_RESPONSE_BYTES,
    Request,
    compute_pause,
)
from trimtab.common.kafka_protocol.errors import (
    ConnectionFailedError,
    CoordinatorUnavailableError,
    ErrorResponseError,
    KafkaRequestError,
    MalformedMessageError,
    NotCoordinatorError,
    RequestAbortedError,
    RequestTimeoutError,
    UnsupportedApiError,
    make_error,
)
from trimtab.common.kafka_protocol.fields import compile_table

APIS = {one.key: one for one in vars(apis).values() if isinstance(one, Api)}
GONE = "the broker closes the connection"


class FakeBroker:
    """A broker on a port of its own; `answers` by request are fields, bytes, None, GONE or a list."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self.versions = {api.key: (0, api.last) for api in APIS.values()}
        self.answers: dict[str, Any] = {}
        self.seen: list[str] = []
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.server.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        for one in self.connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.connections.clear()

    def coordinate(self, *groups: str, node: int = 1, port: int = 0) -> None:
        """Answer that a broker coordinates these groups."""
        where = {"node_id": node, "host": "127.0.0.1", "port": port or self.port}
        rows = [{"key": g, **where, "error_code": 0, "error_message": None} for g in groups]
        self.answers["FindCoordinator"] = {"throttle_time_ms": 0, "coordinators": rows}

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self.server.accept()
            except OSError:
                return
            self.connections.append(opened)
            threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        try:
            while header := opened.recv(4, socket.MSG_WAITALL):
                data = opened.recv(struct.unpack(">i", header)[0], socket.MSG_WAITALL)
                key, version, number = struct.unpack_from(">hhi", data)
                self._answer(opened, APIS[key], version, number)
        except OSError:
            return

    def _answer(self, opened: socket.socket, api: Api, version: int, number: int) -> None:
        self.seen.append(api.name)
        answer = self.answers.get(api.name)
        if api is apis.API_VERSIONS and answer is None:
            keys = [{"api_key": k, "min_version": a, "max_version": b} for k, (a, b) in self.versions.items()]
            answer = {"error_code": 0, "api_keys": keys, "throttle_time_ms": 0}
        if isinstance(answer, list):
            answer = answer.pop(0)
        if answer is GONE:
            opened.shutdown(socket.SHUT_RDWR)
        elif isinstance(answer, bytes):
            opened.sendall(answer)
        elif answer is not None:
            out = bytearray(b"\0" if version >= api.flexible and api is not apis.API_VERSIONS else b"")
            compile_table(api.response, version, flexible=version >= api.flexible)[1](out, answer)
            opened.sendall(struct.pack(">ii", len(out) + 4, number) + out)


HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
BEATEN = {"throttle_time_ms": 0, "error_code": 0}
NO_TOPICS = {
    "throttle_time_ms": 0, "brokers": [], "cluster_id": None, "controller_id": 1, "topics": [],
    "cluster_authorized_operations": 0,
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[FakeBroker]:
    made = FakeBroker()
    made.coordinate("g")
    made.answers |= {"Heartbeat": BEATEN, "Metadata": NO_TOPICS}
    yield made
    made.close()


@pytest.fixture
def connect(server: FakeBroker) -> Iterator[Callable[..., Brokers]]:
    opened: list[Brokers] = []

    def build(bootstrap: str = "", timeout: float = 5.0, clock: Any = None, **config: Any) -> Brokers:
        config["bootstrap.servers"] = bootstrap or f"127.0.0.1:{server.port}"
        opened.append(Brokers(config, clock or SystemClock(), client_id="test", timeout=timeout))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


def beat(brokers: Brokers, **how: Any) -> Any:
    return brokers.ask_coordinator("g", apis.HEARTBEAT, HEARTBEAT, **how)


def test_dead_addresses_at_the_front_do_not_prevent_an_answer(connect: Any, server: FakeBroker) -> None:
    """The one that answered is asked first from then on."""
    brokers = connect(f"127.0.0.1:1,127.0.0.1:2,127.0.0.1:{server.port}")
    for _ in range(10):
        assert brokers.ask(apis.METADATA, {"topics": []}).topics == []
    assert server.seen.count("Metadata") == 10
    assert server.seen.count("ApiVersions") == 1


def test_nobody_there_is_a_named_error_and_is_tried_again_after_pauses(connect: Any) -> None:
    """It leaves no socket."""
    clock = Ticking()
    brokers, began = connect("127.0.0.1:1", clock=clock), clock.now
    with pytest.raises(ConnectionFailedError, match="refused"):
        brokers.retry(lambda: beat(brokers))
    assert clock.now - began >= 5.0


def test_a_closed_connection_is_replaced_without_an_error(connect: Any, server: FakeBroker) -> None:
    """Brokers close idle ones after ten minutes."""
    brokers = connect()
    beat(brokers)
    server.drop_connections()
    beat(brokers)
    assert server.seen.count("ApiVersions") == 2


def test_a_read_that_meets_the_close_of_an_idle_connection_is_repeated_once(
    connect: Any, server: FakeBroker
) -> None:
    """The broker may close it while the request is on its way; a fresh connection is not tried again."""
    brokers = connect()
    server.answers["Heartbeat"] = [BEATEN, GONE, BEATEN, GONE, GONE]
    assert [beat(brokers).error_code for _ in range(2)] == [0, 0]
    with pytest.raises(ConnectionFailedError):
        beat(brokers)
    assert server.seen.count("Heartbeat") == 5


def test_a_request_that_changes_something_is_not_repeated(connect: Any, server: FakeBroker) -> None:
    """A join that was received twice would fence its own member."""
    brokers = connect()
    beat(brokers)
    server.answers["LeaveGroup"] = GONE
    with pytest.raises(ConnectionFailedError):
        brokers.ask_coordinator("g", apis.LEAVE_GROUP, {"group_id": "g", "members": []})
    assert server.seen.count("LeaveGroup") == 1


LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}


def test_without_a_login_no_request_is_sent(connect: Any, server: FakeBroker) -> None:
    """Also at the second try, when a broker knows no logins: the connection was closed."""
    del server.versions[apis.SASL_HANDSHAKE.key]
    brokers = connect(**LOGIN, **{"sasl.password": "p"})
    for _ in range(2):
        with pytest.raises(UnsupportedApiError, match="SaslHandshake"):
            brokers.ask(apis.METADATA, {"topics": []})
    assert server.seen == ["ApiVersions", "ApiVersions"]


def test_a_request_with_wrong_fields_leaves_no_answer_behind(connect: Any, server: FakeBroker) -> None:
    """Nothing of a row of requests is sent if one cannot be written."""
    known = [{"node_id": 1, "host": "127.0.0.1", "port": server.port, "rack": None}]
    server.answers["Metadata"] = {**NO_TOPICS, "brokers": known}
    brokers = connect()
    beat(brokers)
    with pytest.raises(KeyError):
        brokers.ask_broker(1, [Request(apis.HEARTBEAT, HEARTBEAT), Request(apis.HEARTBEAT, {})])
    beat(brokers)
    assert (server.seen.count("ApiVersions"), server.seen.count("Heartbeat")) == (1, 2)


def test_a_deadline_that_has_passed_is_a_timeout(connect: Any, server: FakeBroker) -> None:
    """Also before the pause after a failed attempt."""
    brokers = connect()
    server.coordinate("g", port=1)
    with pytest.raises(ConnectionFailedError):
        beat(brokers)
    with pytest.raises(RequestTimeoutError):
        beat(brokers, timeout=-1.0)


def test_a_host_whose_first_address_is_dead_is_reached_by_the_second(
    connect: Any, server: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of two families of addresses, of which one leads nowhere: each has its share of the time."""
    shares: list[float] = []
    opened, looked_up = socket.create_connection, socket.getaddrinfo

    def reach(address: tuple[str, int], seconds: float) -> socket.socket:
        shares.append(seconds)
        if address[0] == "::1":
            raise TimeoutError
        return opened(address, seconds)

    def look_up(host: str, *args: Any, **options: Any) -> list[Any]:
        if host != "both":
            return looked_up(host, *args, **options)
        stream = (socket.SOCK_STREAM, 0, "")
        dead = (socket.AF_INET6, *stream, ("::1", server.port, 0, 0))
        return [dead, (socket.AF_INET, *stream, ("127.0.0.1", server.port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "create_connection", reach)
    assert connect(f"both:{server.port}").ask(apis.METADATA, {"topics": []})
    assert shares[0] < 3.0


def test_a_broker_that_answers_no_more_is_looked_up_again(connect: Any, server: FakeBroker) -> None:
    """It may have moved, and nothing at its former address says so."""
    silent = FakeBroker()
    silent.answers["ApiVersions"] = b""
    places = [
        {"node_id": 1, "host": "127.0.0.1", "port": p, "rack": None} for p in (silent.port, server.port)
    ]
    server.answers["Metadata"] = [{**NO_TOPICS, "brokers": [one]} for one in places]
    brokers = connect()
    with pytest.raises(RequestTimeoutError):
        brokers.ask_broker(1, [Request(apis.HEARTBEAT, HEARTBEAT)], 0.1)
    assert brokers.ask_broker(1, [Request(apis.HEARTBEAT, HEARTBEAT)])[0].error_code == 0
    silent.close()


def test_a_late_answer_is_none_of_the_next_request(connect: Any, server: FakeBroker) -> None:
    """After a time-out the connection is another one."""
    brokers = connect(timeout=5.0)
    server.answers["Heartbeat"] = [None, BEATEN]
    with pytest.raises(RequestTimeoutError):
        beat(brokers, timeout=0.1)
    assert beat(brokers).error_code == 0
    assert server.seen.count("ApiVersions") == 2


def test_a_long_wait_ends_when_the_caller_stops(connect: Any, server: FakeBroker) -> None:
    """Members of a group may take minutes to join."""
    server.answers["Heartbeat"] = None
    with pytest.raises(RequestAbortedError):
        beat(connect(), timeout=60.0, is_stopped=lambda: True)


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">ii", MAX_RESPONSE_BYTES + 1, 1),
        struct.pack(">ii", -1, 1),
        struct.pack(">ii", 6, 99) + b"xx",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_an_answer_of_a_hostile_broker_is_a_named_error(
    connect: Any, server: FakeBroker, answer: bytes
) -> None:
    """Too large, without a size, to another request, or of another protocol."""
    server.answers["Heartbeat"] = [answer, BEATEN]
    brokers = connect()
    with pytest.raises(MalformedMessageError, match=f"127.0.0.1:{server.port}"):
        beat(brokers)
    assert beat(brokers).error_code == 0


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_named_error(data: bytes) -> None:
    """In bounded time: what is missing is waited for until the deadline only."""
    server = FakeBroker()
    server.answers["ApiVersions"] = data
    brokers = Brokers(
        {"bootstrap.servers": f"127.0.0.1:{server.port}"}, SystemClock(), client_id="c", timeout=0.02
    )
    with pytest.raises(KafkaRequestError):
        brokers.ask(apis.METADATA, {"topics": []})
    brokers.close()
    server.close()


def test_a_coordinator_that_has_moved_is_found_again(connect: Any, server: FakeBroker) -> None:
    """By the error code of any response; other codes keep it."""
    brokers = connect()
    server.answers["Heartbeat"] = [{**BEATEN, "error_code": code} for code in (27, 16, 0)]
    for error in (ErrorResponseError, NotCoordinatorError):
        with pytest.raises(error):
            beat(brokers)
    assert server.seen.count("FindCoordinator") == 1
    beat(brokers)
    assert server.seen.count("FindCoordinator") == 2


def test_coordinators_of_old_brokers_are_found_one_by_one(connect: Any, server: FakeBroker) -> None:
    """Before KIP-699; one without a coordinator does not hide the others'."""
    server.versions[apis.FIND_COORDINATOR.key] = (0, 3)
    found = {
        "throttle_time_ms": 0,
        "error_message": None,
        "node_id": 1,
        "host": "127.0.0.1",
        "port": server.port,
    }
    server.answers["FindCoordinator"] = [{**found, "error_code": code} for code in (0, 15, 0)]
    answers = connect().find_coordinators(["a", "b", "c"])
    assert (answers["a"], answers["c"]) == (1, 1)
    assert isinstance(answers["b"], CoordinatorUnavailableError)


def test_an_old_broker_is_refused_by_name(connect: Any, server: FakeBroker) -> None:
    """The connection stays."""
    server.versions[apis.HEARTBEAT.key] = (0, 2)
    brokers = connect()
    with pytest.raises(UnsupportedApiError, match="knows versions 0 to 2 of Heartbeat; 3 or newer is needed"):
        beat(brokers)
    del server.versions[apis.METADATA.key]
    assert brokers.ask(apis.METADATA, {"topics": []})
    assert server.seen.count("ApiVersions") == 1


def test_slow_brokers_are_waited_for_together(connect: Any, server: FakeBroker) -> None:
    """The time of a request does not grow with their number; answers that are there are taken."""
    slow = [FakeBroker() for _ in range(5)]
    nodes = {n: one.port for n, one in enumerate([server, *slow])}
    known = [{"node_id": n, "host": "127.0.0.1", "port": port, "rack": None} for n, port in nodes.items()]
    server.answers["Metadata"] = {**NO_TOPICS, "brokers": known}
    brokers, clock = connect(), SystemClock()
    began = clock.monotonic()
    answers, errors = brokers.ask_each(dict.fromkeys(nodes, Request(apis.HEARTBEAT, HEARTBEAT)), 0.3)
    assert clock.monotonic() - began < 5 * 0.3
    assert (set(answers), set(errors)) == ({0}, {1, 2, 3, 4, 5})
    assert {type(error) for error in errors.values()} == {RequestTimeoutError}
    for one in slow:
        one.close()


def test_threads_share_a_connection(connect: Any, server: FakeBroker) -> None:
    """Each gets the answer to its request."""
    brokers, failed = connect(), list[Exception]()

    def work() -> None:
        try:
            for _ in range(50):
                beat(brokers)
        except KafkaRequestError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failed, server.seen.count("Heartbeat"), server.seen.count("ApiVersions")) == ([], 400, 1)


@given(failures=st.integers(1, 10_000), seed=st.integers())
def test_pauses_grow_up_to_a_limit(failures: int, seed: int) -> None:
    """With jitter, so that clients do not come back together."""
    pause = compute_pause(failures, Random(seed))  # noqa: S311 - jitter
    assert 0.04 <= pause <= 1.2 * LONGEST_PAUSE_S


@pytest.mark.parametrize(
    ("code", "retryable"),
    [(16, True), (14, True), (7, True), (78, True), (76, False), (30, False), (123, False)],
)
def test_errors_of_responses_have_kafkas_names(code: int, retryable: bool) -> None:  # noqa: FBT001
    """Also codes that no subclass has."""
    error = make_error(code, "t-0")
    assert (error.code, error.retryable) == (code, retryable)
    assert str(error).endswith(": t-0")
