"""Observes the demo from outside: the group, the control topics and the sidecar's web page."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from trimtab.assignor.model import TopicPartition
from trimtab.cli.demo.scenario import DEMO_CONSUMER_CAPACITY
from trimtab.common.clock import Clock
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.log_rate_limit import QUIET_LOG_LEVEL
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.sidecar.decision.decision import join_reasons
from trimtab.sidecar.kafka.broker_client import BrokerClient
from trimtab.sidecar.model.observation import ObservedGroup

OwnedByInstance: TypeAlias = Mapping[str, tuple[TopicPartition, ...]]

SIDECAR_ANSWER_TIMEOUT_S: Final = 2.0
QUIET_ACTIONS: Final = frozenset({"hold"})  # no events: one comes with each iteration


@dataclass(frozen=True, slots=True)
class ObservedDecision:
    """A decision of the sidecar; `at` is seconds since the start of the demo."""

    at: float
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class ObservedNumbers:
    """Latest metrics of the sidecar: bytes/s, bytes, counts; None where unknown."""

    write_rate: float | None = None
    backlog_bytes: float | None = None
    running_replicas: int | None = None
    planned_replicas: int | None = None
    desired_replicas: int | None = None


@dataclass(frozen=True, slots=True)
class DemoSnapshot:
    """Observation at `at` seconds since the start."""

    at: float
    owned: OwnedByInstance = field(default_factory=dict[str, tuple[TopicPartition, ...]])
    write_rates: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    draining: tuple[str, ...] = ()
    numbers: ObservedNumbers = field(default_factory=ObservedNumbers)
    moved_bytes_per_s: float = 0.0  # write rate of the partitions that changed their owner
    handovers: int = 0
    handover_seconds: float = 0.0  # all together
    new_decisions: tuple[ObservedDecision, ...] = ()

    @property
    def r_score(self) -> float:
        """R-score since the last snapshot: moved load over capacity (equation 10)."""
        return self.moved_bytes_per_s / DEMO_CONSUMER_CAPACITY

    @property
    def reader_count(self) -> int:
        """Number of consumers that own partitions."""
        return sum(bool(owned) for owned in self.owned.values())


class GroupWatcher:
    """Observes a group; `read_address` returns the sidecar's address, None until it is up."""

    def __init__(
        self, client: Mapping[str, Any], group: str, read_address: Callable[[], str | None], clock: Clock
    ) -> None:
        quiet = {**client, "log_level": QUIET_LOG_LEVEL}
        self.brokers = BrokerClient(quiet, group, SIDECAR_ANSWER_TIMEOUT_S)
        self._topics = ControlTopicReader(parse_consumer_settings({**quiet, "group.id": group}), clock)
        self._read_address = read_address
        self._clock = clock
        self.reset_time()
        self._last_decision_time = self._started_wall
        self._owners: dict[TopicPartition, str] = {}
        self._last_snapshot = DemoSnapshot(0.0)  # a peer that does not answer keeps its values

    def start(self) -> None:
        """Start to follow the control topics; the clock of the demo starts here."""
        self._topics.start()
        self.reset_time()

    def reset_time(self) -> None:
        """Restart the clock of the demo."""
        self._started_wall, self._started_at = self._clock.wall(), self._clock.monotonic()

    def close(self) -> None:
        """Stop following the control topics."""
        self._topics.stop()

    def take_snapshot(self) -> DemoSnapshot:
        """Observe once."""
        group, errors = self.brokers.describe_group()
        owned = self._last_snapshot.owned if errors else _partitions_by_instance(group)
        view = self._topics.build_leader_view()
        rates = {p: rate for p, rate in view.load.write_rates.items() if rate is not None}
        numbers, news = self._fetch_decisions()
        handovers, seconds = self._fetch_handovers()
        self._last_snapshot = DemoSnapshot(
            at=self._clock.monotonic() - self._started_at,
            owned=owned,
            write_rates=rates,
            draining=view.plan.draining if view.plan else (),
            numbers=numbers,
            moved_bytes_per_s=self._sum_moved(owned, rates),
            handovers=handovers,
            handover_seconds=seconds,
            new_decisions=news,
        )
        return self._last_snapshot

    def _sum_moved(self, owned: OwnedByInstance, rates: Mapping[TopicPartition, float]) -> float:
        """Return the write rate in bytes/s of partitions whose owner changed."""
        # against the last owner known: a partition in handover has none for a moment
        now = {p: name for name, partitions in owned.items() for p in partitions}
        moved = [p for p, name in now.items() if self._owners.get(p, name) != name]
        self._owners.update(now)
        return sum(rates.get(p, 0.0) for p in moved)

    def _fetch_decisions(self) -> tuple[ObservedNumbers, tuple[ObservedDecision, ...]]:
        decisions: list[dict[str, Any]] = []
        with suppress(ValueError):
            decisions = json.loads(self._fetch_page("/decisions") or "[]")
        fresh = [v for v in decisions if v["time"] > self._last_decision_time]
        if not fresh:
            return self._last_snapshot.numbers, ()
        self._last_decision_time = fresh[-1]["time"]
        news = tuple(
            ObservedDecision(
                v["time"] - self._started_wall, v["action"], join_reasons(tuple(v["reasons"]), v["failure"])
            )
            for v in fresh
            if v["action"] not in QUIET_ACTIONS
        )
        numbers = fresh[-1]["metrics"]
        return ObservedNumbers(**{name: numbers[name] for name in ObservedNumbers.__slots__}), news

    def _fetch_handovers(self) -> tuple[int, float]:
        """Return count and total seconds of the handovers so far."""
        metric = "trimtab_handover_seconds"
        families = text_string_to_metric_families(self._fetch_page("/metrics"))
        samples = {s.name: s.value for family in families if family.name == metric for s in family.samples}
        if not samples:
            return self._last_snapshot.handovers, self._last_snapshot.handover_seconds
        return int(samples[f"{metric}_count"]), samples[f"{metric}_sum"]

    def _fetch_page(self, path: str) -> str:
        address = self._read_address()
        if address is None:
            return ""
        url = address + path
        timeout = SIDECAR_ANSWER_TIMEOUT_S
        with suppress(OSError), urllib.request.urlopen(url, timeout=timeout) as page:  # noqa: S310 - our sidecar's
            return str(page.read().decode())
        return ""


def _partitions_by_instance(group: ObservedGroup) -> OwnedByInstance:
    members = sorted(group.members, key=lambda member: _sort_key(member.instance))
    return {member.instance: tuple(sorted(member.owned_partitions)) for member in members}


def _sort_key(instance: str) -> tuple[int, str]:
    # worker-10 after worker-9
    digits = instance.rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0, instance)
