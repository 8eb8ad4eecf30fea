"""A connection to one broker: TLS, SASL login, versions of requests, requests in a row.

1. It opens with the first exchange, and anew after an error, a time-out, or when the broker has closed it in
   the meantime. Attempts that fail have growing pauses with jitter between them.
2. An exchange sends all its requests before it waits: a broker answers those of a connection in order.
3. A login that ends (KIP-368) is renewed by another connection, since none is under way between exchanges.
4. Threads may share it: a lock lets one exchange at a time through, and its time-out counts the wait.
5. A broker may close an idle connection while requests are on their way to it: those that change nothing are
   repeated once.
"""

import select
import socket
import ssl
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from threading import Lock
from typing import Any, Final, NamedTuple

from trimtab.common.clock import Clock
from trimtab.common.errors import SaslAuthenticationError
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.apis import Api
from trimtab.common.kafka_protocol.errors import (
    ConnectionFailedError,
    KafkaRequestError,
    LoginFailedError,
    MalformedMessageError,
    RequestAbortedError,
    RequestTimeoutError,
    UnsupportedApiError,
    raise_for_code,
)
from trimtab.common.kafka_protocol.sasl import Login

MAX_RESPONSE_BYTES: Final = 100_000_000  # librdkafka's receive.message.max.bytes
MAX_FIRST_RESPONSE_BYTES: Final = 1_000_000  # its sender is not known to be a broker
CHUNK_BYTES: Final = 1 << 16
STOP_CHECK_INTERVAL_S: Final = 0.2
FIRST_PAUSE_S: Final = 0.05  # before the second attempt; it doubles
LONGEST_PAUSE_S: Final = 1.0  # Java's reconnect.backoff.max.ms
RENEW_AT: Final = 0.85  # of a login's time, as in Java's client
_HEADER: Final = struct.Struct(">ii")  # size of what follows it, number of the request
_NUMBER_BYTES: Final = 4
_FIRST_VERSIONS: Final = {apis.API_VERSIONS.key: (3, 3)}  # until the broker has told its versions


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Request(NamedTuple):
    """A request with its fields."""

    api: Api
    fields: Mapping[str, Any]


class SentRequest(NamedTuple):
    """A request whose response is under way."""

    api: Api
    version: int
    number: int


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What the connections of a client have in common."""

    client_id: str
    timeout: float
    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    begin_login: Callable[[str], Login] | None = None  # at a host


def compute_pause(failures: int, random: Random) -> float:
    """Return the seconds before the next attempt to connect, after so many that failed."""
    pause: float = FIRST_PAUSE_S * 2 ** min(failures - 1, 10)
    return min(LONGEST_PAUSE_S, pause) * random.uniform(0.8, 1.2)


def choose_version(request: Request, supported: Mapping[int, tuple[int, int]], where: Address) -> int:
    """Return the last version that both sides know. Raises UnsupportedApiError."""
    api = request.api
    first, last = supported.get(api.key, (0, -1))
    version = min(last, api.last)
    if version < max(first, api.first):
        known = f"versions {first} to {last}" if last >= 0 else "no version"
        raise UnsupportedApiError(
            f"broker {where} knows {known} of {api.name}; {api.first} or newer is needed"
        )
    return version


class BrokerConnection:
    """Connection to one broker; threads may share it (rule 4)."""

    def __init__(self, address: Address, options: ConnectionOptions, clock: Clock, random: Random) -> None:
        self.address = address
        self._options = options
        self._clock = clock
        self._random = random
        self._using = Lock()  # all below
        self._socket: socket.socket | None = None
        self._versions: Mapping[int, tuple[int, int]] = _FIRST_VERSIONS
        self._login_ends_at: float | None = None
        self._number = 0
        self._failures = 0
        self._next_attempt_at = 0.0

    def exchange(
        self,
        requests: Sequence[Request],
        timeout: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> list[Any]:
        """Return the responses to these requests. Raises KafkaRequestError; `is_stopped` ends the wait."""
        deadline = self._clock.monotonic() + (self._options.timeout if timeout is None else timeout)
        if not self._using.acquire(timeout=max(0.0, deadline - self._clock.monotonic())):
            raise RequestTimeoutError(f"broker {self.address} is busy with other requests")
        try:
            was_open = self._open(deadline)
            try:
                return self._exchange(requests, deadline, is_stopped)
            except ConnectionFailedError:
                if not was_open or not all(one.api.is_repeatable for one in requests):  # rule 5
                    raise
            self._open(deadline)
            return self._exchange(requests, deadline, is_stopped)
        finally:
            self._using.release()

    def open(self, timeout: float) -> int:
        """Connect, log in, and return the file to wait for: for `send` and `receive`, by one thread."""
        with self._using:
            self._open(self._clock.monotonic() + timeout)
            assert self._socket is not None
            return self._socket.fileno()

    def send(self, request: Request, timeout: float) -> SentRequest:
        """Send a request on the open connection; `receive` its response after those of earlier ones."""
        with self._using:
            return self._send([request], self._clock.monotonic() + timeout)[0]

    def receive(self, sent: SentRequest, timeout: float) -> Any:
        """Return the response to the oldest request that was sent."""
        with self._using, self._closing_after_errors():
            return self._decode(sent, self._clock.monotonic() + timeout)

    @property
    def has_received(self) -> bool:
        """Whether bytes have arrived that `receive` has not taken; those of TLS no selector sees."""
        return self._socket is not None and self._is_readable(0)

    def close(self) -> None:
        """Close the connection; the next exchange opens another."""
        with self._using:
            self._close()

    def _exchange(
        self, requests: Sequence[Request], deadline: float, is_stopped: Callable[[], bool] | None = None
    ) -> list[Any]:
        sent = self._send(requests, deadline)
        with self._closing_after_errors():
            return [self._decode(one, deadline, is_stopped) for one in sent]

    def _send(self, requests: Sequence[Request], deadline: float) -> list[SentRequest]:
        versions = [choose_version(request, self._versions, self.address) for request in requests]
        numbers = [self._number + n & 0x7FFFFFFF for n in range(1, len(requests) + 1)]
        self._number = self._number + len(requests) & 0x7FFFFFFF
        sent = [SentRequest(r.api, v, n) for r, v, n in zip(requests, versions, numbers, strict=True)]
        rows = zip(requests, sent, strict=True)
        data = [r.api.encode_request(s.version, s.number, self._options.client_id, r.fields) for r, s in rows]
        with self._closing_after_errors():
            self._get_socket(deadline).sendall(b"".join(data))
        return sent

    def _decode(
        self, sent: SentRequest, deadline: float, is_stopped: Callable[[], bool] | None = None
    ) -> Any:
        return sent.api.decode_response(sent.version, self._receive(sent.number, deadline, is_stopped))

    @contextmanager
    def _closing_after_errors(self) -> Generator[None]:
        """Close the connection after any error, since nobody knows what is under way on it."""
        try:
            yield
        except BaseException as error:
            self._close()
            if isinstance(error, OSError | SaslAuthenticationError):  # ssl.SSLError, too
                raise _translate(error, self.address) from error
            raise

    def _receive(self, number: int, deadline: float, is_stopped: Callable[[], bool] | None) -> bytes:
        while is_stopped is not None and not self._is_readable(STOP_CHECK_INTERVAL_S):
            if is_stopped():
                raise RequestAbortedError(f"broker {self.address} has not answered yet")
            self._get_socket(deadline)
        size, answered = _HEADER.unpack(self._read(_HEADER.size, deadline))
        limit = MAX_FIRST_RESPONSE_BYTES if self._versions is _FIRST_VERSIONS else MAX_RESPONSE_BYTES
        if not _NUMBER_BYTES <= size <= limit:
            raise MalformedMessageError(f"broker {self.address} announces a response of {size} bytes")
        if answered != number:
            raise MalformedMessageError(
                f"broker {self.address} answers request {answered} instead of {number}"
            )
        return self._read(size - _NUMBER_BYTES, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        # as it comes: nothing is allocated for what is only announced
        data = bytearray()
        while len(data) < size:
            part = self._get_socket(deadline).recv(min(CHUNK_BYTES, size - len(data)))
            if not part:
                raise ConnectionFailedError(f"broker {self.address} has closed the connection")
            data += part
        return bytes(data)

    def _get_socket(self, deadline: float) -> socket.socket:
        """Return the socket, which waits until the deadline. Raises RequestTimeoutError after it."""
        assert self._socket is not None
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket

    def _is_readable(self, seconds: float) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        poll = select.poll()  # unlike select, with any number of files
        poll.register(self._socket or -1, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _open(self, deadline: float) -> bool:
        """Connect unless there is a connection that can be used (rules 1 and 3); return whether there was."""
        now = self._clock.monotonic()
        is_login_over = self._login_ends_at is not None and now >= self._login_ends_at
        # readable between exchanges: the broker has closed it, or sends what nobody has asked for
        if self._socket is not None and (is_login_over or self._is_readable(0)):
            self._close()
        if self._socket is not None:
            return True
        self._clock.sleep(max(0.0, min(self._next_attempt_at, deadline) - now))
        self._failures += 1
        self._next_attempt_at = self._clock.monotonic() + compute_pause(self._failures, self._random)
        with self._closing_after_errors():
            self._socket = self._connect(deadline)
            self._negotiate(deadline)
            if self._options.begin_login is not None:
                self._log_in(self._options.begin_login(self.address.host), deadline)
        self._failures, self._next_attempt_at = 0, 0.0
        return False

    def _connect(self, deadline: float) -> socket.socket:
        opened = self._reach(deadline)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._options.tls is not None:
                return self._options.tls.wrap_socket(opened, server_hostname=self.address.host)
        except BaseException:
            opened.close()
            raise
        return opened

    def _reach(self, deadline: float) -> socket.socket:
        """Connect to the first address of the host that answers; each has a share of the time."""
        found = socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM)
        places = list(dict.fromkeys((str(place[0]), int(place[1])) for *_, place in found))
        failed = OSError("the host has no address")
        for n, place in enumerate(places):
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise TimeoutError
            try:
                return socket.create_connection(place, left / (len(places) - n))
            except OSError as error:
                failed = error
        raise failed

    def _negotiate(self, deadline: float) -> None:
        self._versions = _FIRST_VERSIONS
        (answer,) = self._exchange([Request(apis.API_VERSIONS, apis.SOFTWARE)], deadline)
        raise_for_code(answer.error_code)
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    def _log_in(self, login: Login, deadline: float) -> None:
        mechanism = {"mechanism": self._options.mechanism}
        (answer,) = self._exchange([Request(apis.SASL_HANDSHAKE, mechanism)], deadline)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise LoginFailedError(
                f"broker {self.address} offers {offered}, not sasl.mechanism={self._options.mechanism}"
            )
        data, lifetime_ms = next(login), 0
        while True:
            (answer,) = self._exchange([Request(apis.SASL_AUTHENTICATE, {"auth_bytes": data})], deadline)
            if answer.error_code:
                raise LoginFailedError(f"broker {self.address}: {answer.error_message or 'login refused'}")
            lifetime_ms = answer.session_lifetime_ms
            try:
                data = login.send(answer.auth_bytes)
            except StopIteration:
                break
        ends_in = RENEW_AT * lifetime_ms / 1000
        self._login_ends_at = self._clock.monotonic() + ends_in if lifetime_ms else None

    def _close(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
        self._socket = None


def _translate(error: Exception, address: Address) -> KafkaRequestError:
    if isinstance(error, TimeoutError):
        return RequestTimeoutError(f"no answer of broker {address} in time")
    if isinstance(error, SaslAuthenticationError):
        return LoginFailedError(str(error))
    return ConnectionFailedError(f"broker {address}: {error}")
