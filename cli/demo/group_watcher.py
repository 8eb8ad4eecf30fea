"""What is seen of the show: group, control topics and the sidecar's web page, as one value a look.

Everything comes from outside, as an operator would see it; what does not answer keeps its last
value.
"""

import json
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from trimtab.assignor.model import TopicPartition
from trimtab.cli.demo.scenario import CAPACITY
from trimtab.common.clock import Clock
from trimtab.consumer_sdk.consumer.settings import parse
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopics
from trimtab.sidecar.kafka.broker_client import Brokers
from trimtab.sidecar.measurement.observation import GroupView

ANSWER_SECONDS: Final = 2.0
QUIET: Final = frozenset({"hold"})
"""Verdicts that are no news."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict of the sidecar; `at` is seconds since the start of the show."""

    at: float
    action: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The sidecar's latest figures: bytes/s, bytes, counts; None where it does not know."""

    written: float | None = None
    backlog: float | None = None
    running: int | None = None
    planned: int | None = None
    wanted: int | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """One look; `at` is seconds since the start, `moved` bytes/s that changed their reader."""

    at: float
    owned: Mapping[str, tuple[TopicPartition, ...]] = field(
        default_factory=dict[str, tuple[TopicPartition, ...]]
    )
    speeds: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    draining: tuple[str, ...] = ()
    numbers: Numbers = field(default_factory=Numbers)
    moved: float = 0.0
    handovers: int = 0
    handover_seconds: float = 0.0  # all together
    news: tuple[Decision, ...] = ()

    @property
    def r_score(self) -> float:
        """Consumers' worth of reading that stopped for moves since the last look (equation 10)."""
        return self.moved / CAPACITY

    @property
    def readers(self) -> int:
        """Consumers that read something."""
        return sum(bool(owned) for owned in self.owned.values())


class Watcher:
    """Looks at the group `group`; `web` gives the address of the sidecar's page when it is up."""

    def __init__(
        self,
        client: Mapping[str, Any],
        group: str,
        web: Callable[[], str | None],
        clock: Clock,
    ) -> None:
        quiet = {**client, "log_level": 2}
        self._brokers = Brokers(quiet, group, ANSWER_SECONDS)
        self._topics = ControlTopics(parse({**quiet, "group.id": group}), clock)
        self._web = web
        self._clock = clock
        self._wall = clock.wall()
        self._begun = clock.monotonic()
        self._told = self._wall
        self._owners: dict[TopicPartition, str] = {}
        self._last = Moment(0.0)

    @property
    def brokers(self) -> Brokers:
        """Return the connection, for those who ask something else."""
        return self._brokers

    def start(self) -> None:
        """Begin to follow the control topics; the show's time counts from here."""
        self._topics.start()
        self.reset()

    def reset(self) -> None:
        """Let the show's time count from now."""
        self._wall, self._begun = self._clock.wall(), self._clock.monotonic()

    def close(self) -> None:
        """Stop following."""
        self._topics.stop()

    def look(self) -> Moment:
        """Look at everything once; takes a few milliseconds where all answer."""
        group, trouble = self._brokers.group()
        owned = self._last.owned if trouble else _owned(group)
        view = self._topics.view()
        speeds = {p: speed for p, speed in view.load.speeds.items() if speed is not None}
        numbers, news = self._verdicts()
        handovers, seconds = self._handovers()
        self._last = Moment(
            at=self._clock.monotonic() - self._begun,
            owned=owned,
            speeds=speeds,
            draining=view.plan.draining if view.plan else (),
            numbers=numbers,
            moved=self._moved(owned, speeds),
            handovers=handovers,
            handover_seconds=seconds,
            news=news,
        )
        return self._last

    def _moved(
        self,
        owned: Mapping[str, tuple[TopicPartition, ...]],
        speeds: Mapping[TopicPartition, float],
    ) -> float:
        """Return the speed of partitions that another consumer reads than the last one that did."""
        now = {p: name for name, partitions in owned.items() for p in partitions}
        moved = [p for p, name in now.items() if self._owners.get(p, name) != name]
        self._owners.update(now)
        return sum(speeds.get(p, 0.0) for p in moved)

    def _verdicts(self) -> tuple[Numbers, tuple[Decision, ...]]:
        found: list[dict[str, Any]] = []
        with suppress(ValueError):
            found = json.loads(self._get("/verdicts") or "[]")
        fresh = [v for v in found if v["time"] > self._told]
        if not fresh:
            return self._last.numbers, ()
        self._told = fresh[-1]["time"]
        news = tuple(
            Decision(v["time"] - self._wall, v["action"], tuple(v["reasons"]))
            for v in fresh
            if v["action"] not in QUIET
        )
        numbers = fresh[-1]["numbers"]
        return Numbers(**{name: numbers[name] for name in Numbers.__slots__}), news

    def _handovers(self) -> tuple[int, float]:
        """Return count and seconds of the handovers that the sidecar has seen."""
        wanted = "trimtab_handover_seconds"
        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(self._get("/metrics"))
            if family.name == wanted
            for sample in family.samples
        }
        if not samples:
            return self._last.handovers, self._last.handover_seconds
        return int(samples[f"{wanted}_count"]), samples[f"{wanted}_sum"]

    def _get(self, path: str) -> str:
        address = self._web()
        if address is None:
            return ""
        with (
            suppress(OSError),
            urllib.request.urlopen(address + path, timeout=ANSWER_SECONDS) as answer,  # noqa: S310 - our sidecar's own page
        ):
            return str(answer.read().decode())
        return ""


def _owned(group: GroupView) -> dict[str, tuple[TopicPartition, ...]]:
    return {
        reader.instance: tuple(sorted(reader.owned))
        for reader in sorted(group.readers, key=lambda r: _number(r.instance))
    }


def _number(instance: str) -> tuple[int, str]:
    """Sort worker-10 behind worker-9."""
    digits = instance.rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0, instance)
