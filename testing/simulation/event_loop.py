"""Stand-in for kafka-python's event loop: a coroutine runs to its end in a simulated thread."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from kafka.errors import KafkaError, KafkaTimeoutError

from trimtab.testing.simulation import green


class Net:
    """kafka-python's event loop: coroutines run to their end in a thread of ours."""

    def sleep(self, seconds: float) -> "Sleep":
        return Sleep(seconds)

    def run(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        return run(function(*arguments))


class Sleep:
    """An awaitable during which the other threads run."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[None, None, None]:
        hub = green.process().hub
        hub.sleep(hub.lazily(self._seconds) / 3)
        yield from ()


class Called:
    """The future of `call_soon`."""

    def __init__(self) -> None:
        self._good: list[Callable[[Any], None]] = []
        self._bad: list[Callable[[Exception], None]] = []

    def add_callback(self, callback: Callable[[Any], None]) -> None:
        self._good.append(callback)

    def add_errback(self, callback: Callable[[Exception], None]) -> None:
        self._bad.append(callback)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            value = run(coroutine)
        except KafkaError as error:
            for bad in self._bad:
                bad(error)
        else:
            for good in self._good:
                good(value)


class Manager:
    """Runs coroutines soon, and waits for them."""

    def call_soon(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Called:
        called = Called()
        green.process().start(lambda: called.run(function(*arguments)))
        return called

    async def wait_for(self, called: Called, timeout_ms: float) -> Any:
        future = green.Future()
        called.add_callback(future.set_result)
        called.add_errback(future.set_exception)
        if not future.ended(timeout_ms / 1000):
            raise KafkaTimeoutError
        return future.result()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits by `Sleep` and by our own calls only."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a coroutine waits for something that is not simulated")
