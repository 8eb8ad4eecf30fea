"""Ends a wait for records from another thread: all private parts of confluent-kafka that the SDK uses.

librdkafka's `rd_kafka_queue_yield` makes a wait for its queue return; one that begins later returns at once,
so no wake-up is lost. confluent-kafka (2.16) does not expose it: it is called in the library that
confluent-kafka has loaded, on the client's handle, the first field of its object.
`tests/kafka/group/test_idle.py` fails when a release changes them.
"""

import ctypes
from threading import RLock
from typing import Any, Final

from confluent_kafka import cimpl


class FetchWakeup:
    """Wakes the thread that waits inside `consume` or `poll` of one consumer."""

    def __init__(self, consumer: Any) -> None:
        self._lock = RLock()  # re-entrant, since a signal handler may interrupt `wake` and close the consumer
        self._handle = _find_handle(consumer)

    @property
    def is_possible(self) -> bool:
        """Whether `wake` has an effect; not with another library or object than expected, or after `end`."""
        return self._handle is not None

    def wake(self) -> None:
        """End the wait, or the next one; from any thread."""
        with self._lock:
            # Nothing between the check and the call is a call: no signal handler can close the client there.
            if self._handle is not None and (handle := self._handle.value):
                queue = _LIBRDKAFKA.rd_kafka_queue_get_consumer(handle)
                _LIBRDKAFKA.rd_kafka_queue_yield(queue)
                _LIBRDKAFKA.rd_kafka_queue_destroy(queue)  # of this reference

    def end(self) -> None:
        """Wake no more; before the client is closed, whose wait for the broker would end, too."""
        with self._lock:
            self._handle = None


def _load_librdkafka() -> Any:
    try:
        library = ctypes.CDLL(cimpl.__file__)  # its symbols include those of the libraries that it needs
        library.rd_kafka_opaque.restype = library.rd_kafka_queue_get_consumer.restype = ctypes.c_void_p
        library.rd_kafka_opaque.argtypes = library.rd_kafka_queue_get_consumer.argtypes = [ctypes.c_void_p]
        library.rd_kafka_queue_yield.argtypes = library.rd_kafka_queue_destroy.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):  # a build that hides them: consumers poll instead
        return None
    return library


_LIBRDKAFKA: Final = _load_librdkafka()


def _find_handle(consumer: Any) -> ctypes.c_void_p | None:
    """Return the object's field with librdkafka's handle, empty once it is closed; None if there is none."""
    if _LIBRDKAFKA is None:
        return None
    handle = ctypes.c_void_p.from_address(id(consumer) + object.__basicsize__)
    # confluent-kafka gives librdkafka its own object as the callbacks' argument.
    return handle if handle.value and _LIBRDKAFKA.rd_kafka_opaque(handle.value) == id(consumer) else None
