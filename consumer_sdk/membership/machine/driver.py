"""The thread of a `ClassicMember`: a selector, the next due time, and a wake-up; it polls for nothing.

1. Only this thread touches the member. Others leave work to it with `call`, which wakes it.
2. One connection to the coordinator, on which requests follow each other without waiting: a broker answers
   them in order. While it is opened nothing else could be sent.
3. After any error of the connection the member learns of the disconnect, and decides what follows.
"""

import logging
import selectors
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from threading import Event, Thread
from typing import Final, NamedTuple

from trimtab.common.clock import Clock
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.kafka_protocol.connection import Address, BrokerConnection, Request, SentRequest
from trimtab.common.kafka_protocol.errors import ConnectionFailedError, KafkaRequestError
from trimtab.consumer_sdk.membership.machine.classic_member import ClassicMember
from trimtab.consumer_sdk.membership.machine.values import (
    CoordinatorFound,
    CoordinatorLost,
    MemberEvent,
    MemberRequest,
)

log = logging.getLogger("trimtab.consumer_sdk")

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 5.0  # of an answer whose first bytes have arrived
_WAKE_BYTES: Final = 4096


class _Sent(NamedTuple):
    request: MemberRequest
    on_wire: SentRequest


class MemberDriver:
    """Sends a member's requests and receives their responses, on one thread.

    `on_event` runs on that thread, with the events that concern no connection.
    """

    def __init__(
        self,
        member: ClassicMember,
        brokers: Brokers,
        clock: Clock,
        on_event: Callable[[MemberEvent], None],
        name: str = "trimtab-member",
    ) -> None:
        self.member = member
        self._brokers = brokers
        self._clock = clock
        self._on_event = on_event
        self._calls: deque[Callable[[ClassicMember, float], object]] = deque()  # appended by any thread
        self._wake_up, self._woken = socket.socketpair()
        for end in (self._wake_up, self._woken):
            end.settimeout(0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._connection: BrokerConnection | None = None
        self._file = -1  # of the connection
        self._sent: deque[_Sent] = deque()
        self._stopping = Event()
        self.error: Exception | None = None  # that ended the thread
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def call(self, work: Callable[[ClassicMember, float], object]) -> None:
        """Have the thread call this with the member and the time; from any thread."""
        self._calls.append(work)
        with suppress(OSError):  # closed, or so full that it wakes anyway
            self._wake_up.send(b"\0")

    def stop(self) -> None:
        """End the thread, without leaving the group; from any thread but its own."""
        self._stopping.set()
        self.call(lambda _member, _now: None)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._run_step()
        except Exception as error:
            self.error = error
            log.exception("the thread of a group member has ended")
        finally:
            self._disconnect()
            self._selector.close()
            self._wake_up.close()
            self._woken.close()

    def _run_step(self) -> None:
        while self._calls:
            self._calls.popleft()(self.member, self._clock.monotonic())
        self._report_events()
        while (request := self.member.next_request(self._clock.monotonic())) is not None:
            self._send(request)
            self._report_events()
        self._report_events()
        if not self._calls:
            self._wait()

    def _wait(self) -> None:
        """Wait for an answer, a call or the next due time."""
        now = self._clock.monotonic()
        due = self.member.next_due(now)
        if self._connection is not None and self._sent and self._connection.has_received:
            self._receive()
            return
        ready = self._selector.select(None if due == inf else max(0.0, due - now))
        files = {key.fd for key, _ in ready}
        if self._woken.fileno() in files:
            with suppress(BlockingIOError):
                self._woken.recv(_WAKE_BYTES)
        if self._file in files:
            self._receive()

    def _report_events(self) -> None:
        for event in self.member.take_events():
            if isinstance(event, CoordinatorFound):
                self._connect(Address(event.host, event.port))
            elif isinstance(event, CoordinatorLost):
                log.info("coordinator of group %s: %s", self.member.options.group, event.why)
                self._disconnect()
            else:
                self._on_event(event)

    def _send(self, request: MemberRequest) -> None:
        if request.api is apis.FIND_COORDINATOR:
            self._find_coordinator(request)
            return
        if self._connection is None:
            return  # lost while this step ran; the member knows
        try:
            timeout = request.answer_by - request.sent_at
            on_wire = self._connection.send(Request(request.api, request.fields), timeout)
        except KafkaRequestError as error:
            self._fail(error)
        else:
            self._sent.append(_Sent(request, on_wire))

    def _find_coordinator(self, request: MemberRequest) -> None:
        try:
            response = self._brokers.ask(request.api, request.fields)
        except KafkaRequestError as error:
            self._fail(error)
        else:
            self.member.on_response(request, response, self._clock.monotonic())

    def _receive(self) -> None:
        if self._connection is None or not self._sent:
            self._fail(ConnectionFailedError("the broker has closed the connection"))
            return
        try:
            request, on_wire = self._sent[0]
            response = self._connection.receive(on_wire, READ_TIMEOUT_S)
        except KafkaRequestError as error:
            self._fail(error)
        else:
            self._sent.popleft()
            self.member.on_response(request, response, self._clock.monotonic())

    def _connect(self, address: Address) -> None:
        self._disconnect()
        made = self._brokers.make_connection(address)
        try:
            self._file = made.open(CONNECT_TIMEOUT_S)
        except KafkaRequestError as error:
            made.close()
            self._fail(error)
            return
        self._connection = made
        self._selector.register(self._file, selectors.EVENT_READ)

    def _fail(self, error: KafkaRequestError) -> None:
        self._disconnect()
        self.member.on_disconnect(self._clock.monotonic(), str(error))

    def _disconnect(self) -> None:
        self._sent.clear()
        if self._connection is None:
            return
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._file)
        self._connection.close()
        self._connection, self._file = None, -1


__all__ = ["MemberDriver"]
