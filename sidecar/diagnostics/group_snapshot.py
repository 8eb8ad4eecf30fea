"""Reads a live group repeatedly for `trimtab top`, without changing it.

Write rates are the recently published ones; without them they are measured here, and unknown until
half a window has passed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.choices import QueueKind
from trimtab.common.clock import Clock
from trimtab.common.errors import PeerError
from trimtab.sidecar.control_loop import distinguish_members
from trimtab.sidecar.diagnostics.group_status import LiveGroupSnapshot
from trimtab.sidecar.diagnostics.what_if import PUBLISHED_RATES_MAX_AGE_S, SOURCE_MEASURED, SOURCE_PUBLISHED
from trimtab.sidecar.errors import NoBrokersAvailableError
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.measurement.group_monitor import GroupMonitor
from trimtab.sidecar.measurement.observation import ObservedGroup
from trimtab.sidecar.reporting.decision_record import DecisionRecord
from trimtab.sidecar.settings.settings import SidecarSettings

DEPARTED_CONSUMER_SHOWN_S: Final = 60.0
"""Seconds for which a departed consumer is still shown."""


class LiveGroupReader:
    """Reads snapshots of one group."""

    def __init__(self, settings: SidecarSettings, clock: Clock, *, capacity_known: bool) -> None:
        self._clock = clock
        self._settings = settings
        self._capacity = settings.capacity if capacity_known else None
        self._monitor = GroupMonitor(settings, clock)
        self._control_topics = ControlTopicStore(settings, self._monitor.brokers.admin)
        self._last_seen: dict[str, float] = {}  # consumer -> when it was there last

    def close(self) -> None:
        """Close the connections."""
        self._monitor.close()

    def read_snapshot(self) -> LiveGroupSnapshot:
        """Read a snapshot; an unreachable broker is reported in `trouble`."""
        now = self._clock.wall()
        try:
            plan, published = (self._control_topics.read_plan(), self._control_topics.read_write_rates())
            records, trouble = self._control_topics.read_decisions(), tuple[str, ...]()
            self._detect_share_group(records)
        except NoBrokersAvailableError as error:
            return self._build_blind_snapshot(now, str(error))
        except PeerError as error:
            plan, published, records, trouble = None, {}, (), (str(error),)
        lately = [s for s in published.values() if s.time >= now - PUBLISHED_RATES_MAX_AGE_S]
        if lately:
            source = SOURCE_PUBLISHED
            group, more = self._monitor.describe_group_with_trouble()
            speeds = {TopicPartition(s.topic, n): speed for s in lately for n, speed in s.partitions.items()}
            racks, silent = self._monitor.fetch_replica_racks(group, speeds)
            more += silent
        else:
            source = SOURCE_MEASURED
            measured = self._monitor.measure()
            group, speeds, more = measured.group, dict(measured.write_rates), measured.trouble
            racks = measured.replica_racks
        group = distinguish_members(group)
        known = self._list_known_consumers(now)
        leaving = () if plan is None else plan.draining
        self._last_seen.update({r.instance: now for r in group.members})
        self._last_seen = {n: at for n, at in self._last_seen.items() if n not in leaving}
        return LiveGroupSnapshot(
            time=now,
            group=group,
            write_rates=speeds,
            rate_source=source,
            plan=plan,
            decisions=records,
            trouble=tuple(dict.fromkeys((*trouble, *more))),
            known_consumers=known,
            capacity=self._capacity,
            replica_racks=racks,
        )

    def _list_known_consumers(self, now: float) -> frozenset[str]:
        return frozenset(n for n, at in self._last_seen.items() if now - at <= DEPARTED_CONSUMER_SHOWN_S)

    def _build_blind_snapshot(self, now: float, trouble: str) -> LiveGroupSnapshot:
        """Return an empty snapshot."""
        # without a broker every further request would wait for its timeout
        known = self._list_known_consumers(now)
        return LiveGroupSnapshot(
            now,
            ObservedGroup(),
            {},
            SOURCE_MEASURED,
            trouble=(trouble,),
            known_consumers=known,
            capacity=self._capacity,
        )

    def _detect_share_group(self, records: Sequence[DecisionRecord]) -> None:
        """Switch to a share group if the last decision names one and `queue` is not set."""
        share = bool(records) and records[-1].metrics.queue_kind == QueueKind.SHARE
        if share and self._settings.queue is None:
            self._settings = replace(self._settings, queue=QueueKind.SHARE)
            self._monitor.close()
            self._monitor = GroupMonitor(self._settings, self._clock)
