"""From readings to what a decision weighs, turn by turn: speeds, backlog, needed rates. No I/O.

A partition is *stuck* when more than the allowance has waited for a whole window of consumption,
one member has read it all that time, and has committed nothing of it: a record that cannot be
handled, or a consumer that hangs. It is told, and not taken for a sign of too few consumers. Its
backlog weighs as ever: if it weighed nothing, a sink that is down would make everything light, each
move would make what was moved heavy again, and so ask for the next move.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import PartitionSpeed
from trimtab.sidecar.measurement.observation import GroupView
from trimtab.sidecar.measurement.queue_backlog import Kind
from trimtab.sidecar.measurement.write_rate import Meter, Readings, Window, late, needed
from trimtab.sidecar.measurement.write_rate_variance import Swings
from trimtab.sidecar.settings.settings import Settings

SAMPLES: Final = 12
"""Readings of the commits that are kept over the window of consumption."""


@dataclass(frozen=True, slots=True)
class Gauged:
    """What some readings gave; `consumed` in bytes/s, of partitions of which it is known."""

    speeds: Mapping[TopicPartition, PartitionSpeed]
    consumed: Mapping[TopicPartition, float]
    stuck: frozenset[TopicPartition]


class Gauge:
    """Keeps the windows of readings, and who has been late with what since when (seconds)."""

    def __init__(self, settings: Settings) -> None:
        window = Window(settings.window, settings.window / 2)
        self._effect = settings.effect
        commits = Window(self._effect, self._effect / 2, grain=self._effect / SAMPLES)
        self._meter = Meter(
            window,
            growth=window if settings.source == "log-dirs" else None,
            commits=commits if self._effect else None,
        )
        self._swings = Swings(settings.window)
        self._drain = settings.drain
        shared = settings.queue is Kind.SHARE  # then a backlog may have more than one consumer
        self._room = math.inf if shared else settings.policy.room
        self._held: dict[TopicPartition, tuple[str, float]] = {}

    def learn(self, sizes: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Take in sizes of records, in bytes."""
        self._meter = replace(self._meter, sizes=self._meter.sizes.learn(sizes))

    def take(self, now: float, readings: Readings, group: GroupView) -> Gauged:
        """Take readings in; `now` is in seconds, of a clock that never goes back."""
        self._meter = self._meter.add(now, readings)
        measured = self._meter.measure(readings)
        self._swings = self._swings.seen(now, measured)
        consumed = self._meter.consumed(readings)
        speeds = needed(self._swings.marked(measured), self._drain, self._room)
        if readings.work is not None:  # what is in work for long is not stuck
            measured = self._meter.measure(replace(readings, work=None))
        return Gauged(speeds, consumed, self._stuck(now, group, measured, consumed))

    def blank(self, now: float, readings: Readings) -> Mapping[TopicPartition, PartitionSpeed]:
        """Take note that nobody answered: every speed becomes unknown, and stays so for a while."""
        self._meter = self._meter.add(now, readings)
        return self._meter.measure(readings)

    def _stuck(
        self,
        now: float,
        group: GroupView,
        measured: Mapping[TopicPartition, PartitionSpeed],
        consumed: Mapping[TopicPartition, float],
    ) -> frozenset[TopicPartition]:
        """Return what has been late for long with a member that is at it, in vain."""
        there = {p: reader.id for reader in group.readers for p in reader.owned}
        behind = [p for p in there if p in measured and late(measured[p], self._drain)]
        before, self._held = self._held, {}
        for partition in behind:
            held = before.get(partition)
            kept = held is not None and held[0] == there[partition]
            self._held[partition] = held if held is not None and kept else (there[partition], now)
        return frozenset(
            p
            for p, (_, since) in self._held.items()
            if now - since >= self._effect and consumed.get(p) == 0
        )
