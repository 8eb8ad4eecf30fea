"""Streams of write rates, and the file format of simulations and recordings.

The format is a JSON list of ticks, each `{"topic": {"partition": bytes_per_s}}`. A partition may
be absent from a tick.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trimtab.assignor.model import FloatArray, TopicPartition
from trimtab.common.errors import InvalidStreamError

MAX_BYTES_PER_S: Final = 1e15  # sums of such rates are far from overflowing

MAX_PARTITION: Final = 2**31 - 1  # Kafka's partition numbers are int32


@dataclass(frozen=True, slots=True)
class WriteRateStream:
    """Write rates of N ticks; `rates` (N, P) is in bytes/s, NaN for an absent partition."""

    partitions: tuple[TopicPartition, ...]  # (P,) sorted
    rates: FloatArray


def parse_stream(text: str | bytes) -> WriteRateStream:
    """Parse the text of a stream file. Raises InvalidStreamError with the place of the error."""
    try:
        ticks: object = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except RecursionError:
        raise InvalidStreamError("the stream is nested too deeply to be a list of ticks") from None
    except ValueError as error:
        raise InvalidStreamError(f"the stream is not JSON: {error}") from error
    if not isinstance(ticks, list) or not ticks:
        raise InvalidStreamError('the stream must be a list of ticks, each {"topic": {"partition": bytes/s}}')
    rows = [_parse_tick(number, tick) for number, tick in enumerate(ticks)]
    partitions = sorted(set[TopicPartition]().union(*rows))
    rates = [[row.get(p, math.nan) for p in partitions] for row in rows]
    return WriteRateStream(tuple(partitions), np.array(rates, dtype=np.float64).reshape(len(rows), -1))


def format_stream(stream: WriteRateStream) -> str:
    """Return the stream as file text, one tick per line."""
    lines: list[str] = []
    for row in stream.rates.tolist():
        tick: dict[str, dict[str, float]] = {}
        for partition, rate in zip(stream.partitions, row, strict=True):
            if not math.isnan(rate):
                tick.setdefault(partition.topic, {})[str(partition.partition)] = rate
        lines.append(json.dumps(tick, separators=(",", ":")))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # json.loads would silently keep the last of two equal keys.
    body = dict(pairs)
    if len(body) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidStreamError(f"a topic or partition is twice in one tick: {twice!r}; leave one out")
    return body


def _parse_tick(number: int, tick: Any) -> dict[TopicPartition, float]:
    where = f"tick {number}"
    if not isinstance(tick, dict):
        raise InvalidStreamError(f'{where}: {_shorten(tick)} must be {{"topic": {{"partition": bytes/s}}}}')
    rates: dict[TopicPartition, float] = {}
    for topic, partitions in tick.items():
        if not isinstance(partitions, dict):
            raise InvalidStreamError(
                f'{where}, topic {topic!r}: {_shorten(partitions)} must be {{"partition": bytes/s}}'
            )
        for partition, rate in partitions.items():
            name = TopicPartition(topic, _parse_partition(f"{where}, topic {topic!r}", partition))
            if name in rates:
                raise InvalidStreamError(f"{where}: {name} is there twice; leave one out")
            rates[name] = _parse_rate(f"{where}, {name}", rate)
    return rates


def _parse_partition(where: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise InvalidStreamError(f"{where}: partition {text!r} must be a number from 0 on")
    # Python refuses to convert more than 4,300 digits.
    number = int(text) if len(text) <= len(str(MAX_PARTITION)) else MAX_PARTITION + 1
    if number > MAX_PARTITION:
        raise InvalidStreamError(
            f"{where}: partition {_shorten(text)} is above {MAX_PARTITION}, Kafka's highest"
        )
    return number


def _parse_rate(where: str, rate: Any) -> float:
    where = f"{where}: write rate {_shorten(rate)}"
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not math.isfinite(rate) or rate < 0:
        raise InvalidStreamError(f"{where} must be a finite number from 0 on, bytes/s")
    if rate > MAX_BYTES_PER_S:
        raise InvalidStreamError(f"{where} is above {MAX_BYTES_PER_S:g} bytes/s; correct it")
    return float(rate)


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - a screen line
