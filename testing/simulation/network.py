"""The connection between a process and the brokers: messages may be late, lost, or duplicated.

A request travels, is handled, and its response travels back. While a process is cut off, requests
and responses are lost, and the process notices some time later; so a missing response does not
tell whether the request was handled. Requests in flight when a cut begins are lost, too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trimtab.testing.simulation.green import Future, Hub, Process, process

Handler = Callable[[Callable[[Any], None]], None]
"""Handles a request when it arrives, and calls what it is given with the answer, now or later."""


class UnreachableError(Exception):
    """No response: the request may or may not have been handled."""


@dataclass(slots=True)
class Network:
    """All connections; probabilities per message, times in seconds."""

    hub: Hub
    lost: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0
    longest_delay: float = 2.0  # of a request without an answer
    _cut: dict[str, float] = field(default_factory=dict[str, float])
    _down: float = 0.0

    def cut(self, name: str, seconds: float) -> None:
        """Cut a process off for a while."""
        self._cut[name] = self.hub.now + seconds

    def down(self, seconds: float) -> None:
        """Make the brokers unreachable for a while."""
        self._down = self.hub.now + seconds

    def heal(self) -> None:
        """Stop all faults."""
        self.lost = self.doubled = self.slow = self._down = 0.0
        self._cut.clear()

    def away(self, name: str) -> bool:
        """Return whether a process cannot reach the brokers."""
        return self.hub.now < max(self._down, self._cut.get(name, 0.0))

    def call(self, handler: Handler, *, twice: bool = True, given_up: bool = False) -> Any:
        """Send a request from the current process and wait for the response. Raises UnreachableError.

        With `twice` it may be handled again later, as when a client retries; with `given_up` it may instead
        get no answer, and be handled before or after the caller gives up: of a client that sends each request
        once, and retries by itself, TCP delivers no request twice.
        """
        caller, future = process(), Future()
        doubled = self.doubled if twice or given_up else 0.0
        if given_up and self.hub.rng.random() < doubled:
            self._fail(future)
            self.hub.at(
                self._delay() + self.hub.rng.uniform(0.0, self.longest_delay), lambda: handler(_ignore)
            )
        else:
            self._send(caller, future, handler, 0.0 if given_up else doubled)
        return future.result()

    def _send(self, caller: Process, future: Future, handler: Handler, doubled: float) -> None:
        rng = self.hub.rng
        if self._drops(caller):
            self._fail(future)
            return
        self.hub.at(self._delay(), lambda: self._arrive(caller, future, handler))
        if rng.random() < doubled:
            late = self._delay() + rng.uniform(0.0, 1.0)
            self.hub.at(late, lambda: handler(_ignore))

    def _arrive(self, caller: Process, future: Future, handler: Handler) -> None:
        if self.away(caller.name):
            self._fail(future)
        else:
            handler(lambda answer: self._answer(caller, future, answer))

    def _answer(self, caller: Process, future: Future, answer: Any) -> None:
        if self._drops(caller):
            self._fail(future)
        else:
            self.hub.at(self._delay(), lambda: self._deliver(caller, future, answer))

    def _deliver(self, caller: Process, future: Future, answer: Any) -> None:
        if self.away(caller.name):
            self._fail(future)
        elif not future.done():
            future.set_result(answer)

    def _drops(self, caller: Process) -> bool:
        return self.away(caller.name) or self.hub.rng.random() < self.lost

    def _delay(self) -> float:
        rng = self.hub.rng
        usual = rng.uniform(0.001, 0.02)
        return usual + rng.uniform(0.0, 1.5) if rng.random() < self.slow else usual

    def _fail(self, future: Future) -> None:
        def fail() -> None:
            if not future.done():
                future.set_exception(UnreachableError("no answer"))

        self.hub.at(self.hub.rng.uniform(0.05, 1.0), fail)


def _ignore(_answer: Any) -> None:
    """Lose an answer."""
