"""Threads as coroutines on a simulated clock: one seed decides everything.

One `Hub` runs the history: a heap of actions, ordered by time and, at equal times, by chance.
A `Thread` of a simulated process is a greenlet: it runs until it waits, and another one can
continue only then. A `Process` owns threads; it can be frozen (none of them runs until it
thaws) and killed (none of them runs again).

`Event`, `Thread`, `Queue`, `Future` and `wait_for` have the methods that the product uses of the
modules `threading`, `queue` and `concurrent.futures`.

A real machine may delay any thread by any amount. So a wait with a timeout has a minimum duration
here, which makes loops that poll every few milliseconds affordable.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from greenlet import getcurrent, greenlet

LAZY: Final = (0.1, 0.5)
"""Minimum seconds of a wait that ends by timeout."""

EPOCH: Final = 1.7e9


class Killed(BaseException):
    """Ends the simulated process at any point."""


class Hub:
    """Simulated clock and its scheduled actions."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)  # noqa: S311 - chance that can be repeated
        self.events = 0
        self._heap: list[tuple[float, float, int, Callable[[], object]]] = []
        self._count = 0
        self._stopped = False
        self.processes: list[Process] = []
        self.main = getcurrent()

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Schedule an action in `seconds`."""
        self._count += 1
        entry = (self.now + seconds, self.rng.random(), self._count, action)
        heapq.heappush(self._heap, entry)

    def run(self, until: float) -> bool:
        """Run until a time; return False if stopped before."""
        heap = self._heap
        while heap and heap[0][0] <= until and not self._stopped:
            self.now, _, _, action = heapq.heappop(heap)
            self.events += 1
            action()
        self.now = self.now if self._stopped else until
        return not self._stopped

    def stop(self) -> None:
        """Stop after the current action."""
        self._stopped = True

    def unwind(self) -> None:
        """End the threads of dead processes, without further actions."""
        self._stopped = True
        self._heap.clear()
        for ended in self.processes:
            ended.clean()

    def park(self) -> Any:
        """Suspend this thread until it is resumed; return the value given to `resume`."""
        me = getcurrent()
        assert isinstance(me, _Green), "only a simulated thread can wait"
        if not me.process.alive:
            raise Killed
        value = self.main.switch()
        if not me.process.alive:
            raise Killed
        return value

    def resume(self, ticket: "Ticket", value: object = None) -> None:
        """Resume a parked thread, once; later if its process is frozen."""
        if ticket.used:
            return
        ticket.used = True
        self.wake(ticket.green, value)

    def wake(self, green: "_Green", value: object) -> None:
        process = green.process
        if not process.alive:
            return
        if process.thaws > self.now:
            self.at(process.thaws - self.now, lambda: self.wake(green, value))
            return
        green.switch(value)

    def sleep(self, seconds: float) -> None:
        """Suspend the current thread for exactly `seconds`."""
        ticket = Ticket()
        self.at(seconds, lambda: self.resume(ticket))
        self.park()

    def lazily(self, seconds: float) -> float:
        """Return the duration of a wait of `seconds` on a machine with delays."""
        return max(seconds, self.rng.uniform(*LAZY))


class _Green(greenlet):  # type: ignore[misc] # greenlet has no types for mypy
    process: "Process"


class Ticket:
    """A wait of the current thread."""

    __slots__ = ("green", "used")

    def __init__(self) -> None:
        green = getcurrent()
        assert isinstance(green, _Green), "only a simulated thread can wait"
        self.green = green
        self.used = False


class Process:
    """A simulated process; `on_death` is called once, with the error that ended it or None."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub = hub
        self.name = name
        self.alive = True
        self.thaws = 0.0
        self.host: Any = None
        self.on_death: Callable[[BaseException | None], None] = lambda _error: None
        self._greens: list[_Green] = []
        hub.processes.append(self)

    def start(self, target: Callable[[], object], *, main: bool = False) -> "_Green":
        """Start a thread; the process ends with its main thread, or with an error in any thread."""

        def body(_resumed: object) -> None:
            try:
                target()
            except Killed:
                pass
            except Exception as error:  # noqa: BLE001 - the history reports it
                self.end(error)
            else:
                if main:
                    self.end(None)

        green = _Green(body, parent=self.hub.main)
        green.process = self
        self._greens.append(green)
        self.hub.at(0.0, lambda: self.hub.wake(green, None))
        return green

    def end(self, error: BaseException | None = None) -> None:
        """End the process with all its threads."""
        if self.alive:
            self.alive = False
            self.hub.at(0.0, self.clean)
            self.on_death(error)

    def clean(self) -> None:
        """Unwind the threads of a dead process; called by the hub."""
        while self._greens:
            green = self._greens.pop()
            if green is not getcurrent() and green and not green.dead:
                with suppress(Killed):
                    green.throw(Killed)

    def freeze(self, seconds: float) -> None:
        """Stop the process for `seconds`, like SIGSTOP and SIGCONT."""
        self.thaws = max(self.thaws, self.hub.now + seconds)


def process() -> Process:
    """Return the process of the current thread."""
    me = getcurrent()
    assert isinstance(me, _Green), "this is no simulated thread"
    return me.process


def is_simulated() -> bool:
    """Return whether the current thread is one of a simulated process."""
    return isinstance(getcurrent(), _Green)


def current_name() -> str:
    """Return the name of the current process, for the trace."""
    me = getcurrent()
    return me.process.name if isinstance(me, _Green) else "world"


class Clock:
    """Implements `trimtab.common.clock.Clock`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def monotonic(self) -> float:
        return self._hub.now

    def wall(self) -> float:
        return EPOCH + self._hub.now

    def sleep(self, seconds: float) -> None:
        self._hub.sleep(self._hub.lazily(seconds))


class Event:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Ticket] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for ticket in waiting:
            _hub(ticket).at(0.0, _resume(ticket))

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._set:
            return True
        hub = process().hub
        ticket = Ticket()
        self._waiting.append(ticket)
        if timeout is not None:
            hub.at(hub.lazily(timeout), _resume(ticket))
        hub.park()
        if ticket in self._waiting and not self.is_set():
            self._waiting.remove(ticket)
        return self._set


class Thread:
    """`threading.Thread`, in the process that creates it."""

    def __init__(
        self,
        target: Callable[[], object],
        name: str = "",
        daemon: bool = False,  # noqa: FBT001, FBT002 - the interface
    ) -> None:
        self.name, self.daemon = name, daemon
        self._target = target
        self._ended = Event()
        self._begun = False

    def start(self) -> None:
        self._begun = True
        process().start(self._run)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._ended.set()

    def is_alive(self) -> bool:
        return self._begun and not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)


class Queue:
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._filled = Event()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._filled.set()

    def get(self) -> Any:
        while not self._items:
            self._filled.clear()
            self._filled.wait()
        return self._items.popleft()


class Future:
    """`concurrent.futures.Future`."""

    def __init__(self) -> None:
        self._done = Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def __class_getitem__(cls, _kind: object) -> type["Future"]:
        return cls

    def set_result(self, value: Any) -> None:
        self._value = value
        self._done.set()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def result(self) -> Any:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def ended(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether it ended in time."""
        return self._done.wait(timeout)


class _Waited:
    def __init__(self, done: set[Future]) -> None:
        self.done = done


def wait_for(futures: Iterable[Future], timeout: float | None = None) -> _Waited:
    """`concurrent.futures.wait`."""
    hub = process().hub
    end = None if timeout is None else hub.now + timeout
    return _Waited({f for f in futures if f.ended(None if end is None else max(0.0, end - hub.now))})


def _hub(ticket: Ticket) -> Hub:
    return ticket.green.process.hub


def _resume(ticket: Ticket) -> Callable[[], None]:
    return lambda: _hub(ticket).resume(ticket)
