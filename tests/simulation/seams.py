"""Seams of the simulation: all names of the product that it replaces.

Beside those of the testing kit, threads, waits and queues of ingest and lake writer become those of
`green`, and ids and jitter come from the seed.
"""

import random
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from simulation.worker import Stepped, WorkerHost
from trimtab.consumer_sdk.lake.commits import retry
from trimtab.consumer_sdk.lake.flush import flush_threads
from trimtab.consumer_sdk.lake.writer import ingest, topic_starts, writer
from trimtab.testing.simulation import green
from trimtab.testing.simulation.host import ObservedConsumer
from trimtab.testing.simulation.seams import CONSUMER_SEAMS, replace_names


def _host() -> WorkerHost:
    host: WorkerHost = green.process().host
    return host


def _random(*seed: Any) -> random.Random:
    own = seed or (green.process().hub.rng.random(),)
    return random.Random(*own)  # noqa: S311 - jitter


def _pace(rng: random.Random, **given: Any) -> retry.RetryBackoff:
    cancel: Any = green.Event()
    return retry.RetryBackoff(rng, cancel, **given)


THREADS = SimpleNamespace(Thread=green.Thread, Event=green.Event)
REPLACED: dict[Any, dict[str, Any]] = {
    ingest: {"Consumer": ObservedConsumer, "LakeWriter": Stepped},
    flush_threads: {
        "Future": green.Future,
        "SimpleQueue": green.Queue,
        "threading": THREADS,
        "wait": green.wait_for,
    },
    topic_starts: {
        "RetryBackoff": _pace,
        "Future": green.Future,
        "threading": THREADS,
        "wait": green.wait_for,
    },
    writer: {"new_attempt_id": lambda: _host().attempt(), "random": SimpleNamespace(Random=_random)},
}


@contextmanager
def simulated() -> Generator[None]:
    """Replace the names while histories run."""
    with replace_names(CONSUMER_SEAMS, REPLACED):
        yield
