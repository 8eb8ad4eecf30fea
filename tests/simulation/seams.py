"""Seams of the simulation: all names of the product that it replaces.

Threads, waits and queues become those of `green`, the two Kafka clients become stand-ins, and ids
and jitter come from the seed. Each is looked up in the current process, so the replacement is made
once for all histories.
"""

import random
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kafka.coordinator import heartbeat

from simulation import green
from simulation.fetching import Fetcher
from simulation.membership import Client
from simulation.worker import Following, Host, Stepped, Watched
from trimtab.consumer_sdk.consumer import consumer
from trimtab.consumer_sdk.lake import ingest, retry
from trimtab.consumer_sdk.lake.writer import flush_threads, writer
from trimtab.consumer_sdk.membership import control_topic_reader, coordinator, member


class Timer:
    """`kafka.util.Timer`, on the simulated clock."""

    def __init__(self, milliseconds: float) -> None:
        self._end = green.process().hub.now + milliseconds / 1000

    @property
    def expired(self) -> bool:
        return green.process().hub.now >= self._end


def _host() -> Host:
    host: Host = green.process().host
    return host


def _random(*seed: Any) -> random.Random:
    own = seed or (green.process().hub.rng.random(),)
    return random.Random(*own)  # noqa: S311 - jitter


def _data_plane(_config: dict[str, Any], _create: Any) -> Fetcher:
    return _host().fetcher()


def _connect(settings: Any, assignor: Any, listener: Any) -> Client:
    return _host().client(settings, assignor, listener)


def _pace(rng: random.Random) -> retry.RetryBackoff:
    cancel: Any = green.Event()
    return retry.RetryBackoff(rng, cancel)


THREADS = SimpleNamespace(Thread=green.Thread, Event=green.Event)
REPLACED: dict[Any, dict[str, Any]] = {
    control_topic_reader: {"Thread": green.Thread, "Event": green.Event},
    consumer: {"create_data_plane": _data_plane},
    ingest: {"Consumer": Watched, "LakeWriter": Stepped},
    member: {
        "ControlTopicReader": Following,
        "Event": green.Event,
        "Thread": green.Thread,
        "_connect_member": _connect,
    },
    heartbeat: {"time": SimpleNamespace(monotonic=lambda: green.process().hub.now)},
    coordinator: {"Event": green.Event, "Timer": Timer},
    flush_threads: {
        "Future": green.Future,
        "SimpleQueue": green.Queue,
        "threading": THREADS,
        "wait": green.wait_for,
    },
    writer: {
        "RetryBackoff": _pace,
        "new_attempt_id": lambda: _host().attempt(),
        "random": SimpleNamespace(Random=_random),
    },
}


@contextmanager
def simulated() -> Generator[None]:
    """Replace the names while histories run."""
    with ExitStack() as stack:
        for module, names in REPLACED.items():
            stack.enter_context(mock.patch.multiple(module, **names))
        yield
