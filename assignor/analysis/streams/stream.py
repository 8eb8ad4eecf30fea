"""Streams of write speeds, and the file format that simulations and recordings share.

The format is a JSON list of ticks, each `{"topic": {"partition": bytes_per_s}}`. A partition may
come and go.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.common.errors import BadStream

FASTEST: Final = 1e15
"""Bytes/s that no partition writes; sums of anything below are far from overflowing."""

HIGHEST: Final = 2**31 - 1
"""Number that Kafka gives to a partition at most."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Write speeds of N ticks; `speeds` (N, P) in bytes/s, NaN where a partition is away."""

    partitions: tuple[TopicPartition, ...]  # (P,) sorted
    speeds: FloatArray


def parse(text: str | bytes) -> Stream:
    """Read a stream file's text. Raises BadStream, saying where it is wrong."""
    try:
        ticks: object = json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise BadStream("the stream is nested too deeply to be a list of ticks") from None
    except ValueError as error:
        raise BadStream(f"the stream is not JSON: {error}") from error
    if not isinstance(ticks, list) or not ticks:
        raise BadStream(
            'the stream must be a list of ticks, each {"topic": {"partition": bytes/s}}'
        )
    rows = [_tick(number, tick) for number, tick in enumerate(ticks)]
    partitions = sorted(set[TopicPartition]().union(*rows))
    speeds = [[row.get(p, math.nan) for p in partitions] for row in rows]
    return Stream(tuple(partitions), np.array(speeds, dtype=np.float64).reshape(len(rows), -1))


def dump(stream: Stream) -> str:
    """Return a stream as the text of a file; one tick a line."""
    lines: list[str] = []
    for row in stream.speeds.tolist():
        tick: dict[str, dict[str, float]] = {}
        for partition, speed in zip(stream.partitions, row, strict=True):
            if not math.isnan(speed):
                tick.setdefault(partition.topic, {})[str(partition.partition)] = speed
        lines.append(json.dumps(tick, separators=(",", ":")))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, which keeps the last of two equal names and tells nobody."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadStream(f"a topic or partition is twice in one tick: {twice!r}; leave one out")
    return found


def _tick(number: int, tick: Any) -> dict[TopicPartition, float]:
    where = f"tick {number}"
    if not isinstance(tick, dict):
        raise BadStream(f'{where}: {_shown(tick)} must be {{"topic": {{"partition": bytes/s}}}}')
    found: dict[TopicPartition, float] = {}
    for topic, partitions in tick.items():
        if not isinstance(partitions, dict):
            raise BadStream(
                f'{where}, topic {topic!r}: {_shown(partitions)} must be {{"partition": bytes/s}}'
            )
        for partition, speed in partitions.items():
            name = TopicPartition(topic, _partition(f"{where}, topic {topic!r}", partition))
            if name in found:
                raise BadStream(f"{where}: {name} is there twice; leave one out")
            found[name] = _speed(f"{where}, {name}", speed)
    return found


def _partition(where: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise BadStream(f"{where}: partition {text!r} must be a number from 0 on")
    number = int(text) if len(text) <= len(str(HIGHEST)) else HIGHEST + 1
    if number > HIGHEST:
        raise BadStream(f"{where}: partition {_shown(text)} is above {HIGHEST}, Kafka's highest")
    return number


def _speed(where: str, speed: Any) -> float:
    number = isinstance(speed, int | float) and not isinstance(speed, bool)
    if not number or not math.isfinite(speed) or speed < 0:
        raise BadStream(
            f"{where}: speed {_shown(speed)} must be a finite number from 0 on, bytes/s"
        )
    if speed > FASTEST:
        raise BadStream(f"{where}: speed {_shown(speed)} is above {FASTEST:g} bytes/s; mend it")
    return float(speed)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - a screen line
