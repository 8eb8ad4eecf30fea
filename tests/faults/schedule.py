"""The schedule of faults: a pure function of a seed.

Faults are drawn from a shuffled bag that holds each kind as often as its weight, so that even a short
run has every kind. `target` is an index into the live processes (modulo their number): processes come
and go at random, the schedule does not.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from support.lake.writer_steps import FLUSH_STEPS, REBALANCE_STEPS
from trimtab.consumer_sdk.client.settings import CLASSIC_PROTOCOL

SESSION: Final = 4.0
"""Session timeout of the consumers in seconds: a freeze or a cut may be shorter or longer."""

GAP: Final = 2.0
"""Mean seconds between two faults; they overlap."""

FLUSH, END, MEMBER = "crash-flush", "crash-drain", "crash-rebalance"
"""Kinds of crash: at a step of a flush, of the end, of a rebalance."""

UNWRITABLE: Final = "unwritable"
"""One topic's table cannot be written: its flushes fail at a step, or find it unreachable."""

UNREACHABLE: Final = "unreachable"
"""Instead of a step: the table does not answer, which is retried for `lake.flush.timeout` first."""

HANGING: Final = "hanging"
"""Instead of a step: calls that open the table do not return, also those of an assignment."""

_ENDING: Final = ("draining", "drained")
POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    FLUSH: FLUSH_STEPS,
    MEMBER: tuple(step for step in REBALANCE_STEPS if step not in _ENDING),
    END: _ENDING,
    UNWRITABLE: (*(step for step in FLUSH_STEPS if step != "offsets-committed"), UNREACHABLE, HANGING),
}
"""The points at which a process crashes, or a flush fails."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Frequency of a kind of fault, and its range of seconds."""

    weight: int
    shortest: float = 0.0
    longest: float = 0.0
    steered: bool = False  # needs a sidecar
    needs: str = ""  # a name of `run.Run._world`


KINDS: Final[Mapping[str, Kind]] = {
    "freeze": Kind(6, 0.3, 2.0 * SESSION),
    "freeze-jvm": Kind(3, 0.3, 6.0),
    "cut": Kind(5, 0.3, 2.0 * SESSION),
    "reset": Kind(4),
    "suspend": Kind(4, 0.3, 2.0 * SESSION),
    "catalog": Kind(3, 0.5, 18.0, needs="sqlite"),
    "catalog-answer": Kind(6, 0.5, 6.0, needs="rest"),
    "store-slow-down": Kind(4, 0.5, 8.0, needs="s3"),
    "store-conflict": Kind(3, 0.5, 4.0, needs="s3"),
    "store-cut-upload": Kind(4, 0.3, 4.0, needs="s3"),
    "store-lost-answer": Kind(4, 0.3, 4.0, needs="s3"),
    "store-expired-token": Kind(3, 0.5, 8.0, needs="s3"),
    "catalog-before-commit": Kind(3, 0.0, 3.0, needs="rest server"),
    "catalog-after-commit": Kind(3, 0.0, 3.0, needs="rest server"),
    "compact": Kind(4, needs="upsert"),
    "schema": Kind(3, needs="upsert"),
    "disk": Kind(2, 0.5, 6.0, needs="disk"),
    "clock": Kind(3, 1.0, 86_400.0),
    "clocks-apart": Kind(3, 1200.0, 1200.0, needs="s3"),
    "visitor": Kind(4, 0.5, 4.0),
    "kill": Kind(1),
    "jvm": Kind(1),
    "stop": Kind(1),
    "broker": Kind(1, 0.0, 3.0, needs="one broker"),
    "brokers": Kind(2, 0.5, 2.0 * SESSION, needs="three brokers"),
    "broker-disk": Kind(1, 0.5, 3.0, needs="one broker's disk"),
    "producer": Kind(3),
    "partitions": Kind(1, needs="several partitions"),
    "topic": Kind(1, 0.5, 4.0),
    "acl": Kind(2, 0.5, 2.0 * SESSION),
    UNWRITABLE: Kind(3, 2.0, 12.0),
    FLUSH: Kind(2),
    MEMBER: Kind(2, needs=CLASSIC_PROTOCOL),  # starts a rebalance by drain()
    END: Kind(1),
    "sidecar": Kind(3, steered=True),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `at` seconds after the round began, for `seconds` (of clocks: the jump)."""

    at: float
    kind: str
    target: int
    seconds: float
    step: str = ""


def draw(seed: int, number: int, count: int, kinds: Mapping[str, Kind]) -> tuple[Fault, ...]:
    """Return the faults of a round, in the order of time."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - it must replay
    at, found = 0.0, []
    for kind in _deal(rng, count, kinds):
        at += rng.expovariate(1.0 / GAP)
        found.append(_fault(rng, at, kind, kinds[kind]))
    return tuple(found)


def _deal(rng: random.Random, count: int, kinds: Mapping[str, Kind]) -> Iterator[str]:
    bag: list[str] = []
    for _ in range(count):
        if not bag:
            bag = [name for name in sorted(kinds) for _ in range(kinds[name].weight)]
            rng.shuffle(bag)
        yield bag.pop()


def _fault(rng: random.Random, at: float, name: str, kind: Kind) -> Fault:
    seconds = rng.uniform(kind.shortest, kind.longest)
    if name in ("clock", "clocks-apart"):
        seconds *= rng.choice((-1, 1))
    step = rng.choice(POINTS[name]) if name in POINTS else ""
    return Fault(round(at, 3), name, rng.randrange(60), round(seconds, 3), step)
