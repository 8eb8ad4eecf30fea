"""Reads a live group repeatedly for `trimtab top`, without changing it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from trimtab.common.clock import Clock
from trimtab.common.errors import PeerError
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.sidecar.diagnostics.group_status import LiveGroupSnapshot
from trimtab.sidecar.diagnostics.what_if import SOURCE_MEASURED, SOURCE_PUBLISHED, select_recent_rates
from trimtab.sidecar.errors import NoBrokersAvailableError
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.model.member_names import distinguish_members
from trimtab.sidecar.model.observation import ObservedGroup
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.records.decision_record import DecisionRecord
from trimtab.sidecar.settings.settings import SidecarSettings

DEPARTED_CONSUMER_SHOWN_S: Final = 60.0  # a dead consumer stays visible, then it is history


class LiveGroupReader:
    """Reads snapshots of one group."""

    def __init__(self, settings: SidecarSettings, clock: Clock, *, capacity_known: bool) -> None:
        self._clock = clock
        self._settings = settings
        self._capacity = settings.capacity if capacity_known else None
        self._monitor = GroupMonitor(settings, clock)
        self._control_topics = ControlTopicStore(settings, self._monitor.brokers.admin)
        self._last_seen: dict[str, float] = {}  # by consumer, seconds since the epoch

    def close(self) -> None:
        """Close the connections."""
        self._monitor.close()

    def read_snapshot(self) -> LiveGroupSnapshot:
        """Read a snapshot; an unreachable broker is reported in `errors`."""
        now = self._clock.wall()
        try:
            plan = self._control_topics.read_plan()
            published = self._control_topics.read_write_rates()
            decisions = self._control_topics.read_decisions()
            errors = tuple[str, ...]()
            self._detect_share_group(decisions)
        except NoBrokersAvailableError as error:
            return self._build_empty_snapshot(now, str(error))
        except PeerError as error:
            plan, published, decisions, errors = None, {}, (), (str(error),)
        recent = select_recent_rates(published.values(), now)
        if recent:
            source, rates = SOURCE_PUBLISHED, recent
            group, more = self._monitor.describe_group_with_errors()
            racks, unknown_racks = self._monitor.fetch_replica_racks(group, rates)
            more += unknown_racks
        else:
            source = SOURCE_MEASURED
            measured = self._monitor.measure()  # unknown for half a window
            group = measured.group
            rates = dict(measured.load.write_rates)
            racks = measured.replica_racks
            more = measured.errors
        group = distinguish_members(group)
        known = self._list_known_consumers(now)
        self._last_seen |= {member.instance: now for member in group.members}
        if plan is not None:  # those leave on purpose
            self._last_seen = {name: at for name, at in self._last_seen.items() if not plan.drains(name)}
        return LiveGroupSnapshot(
            time=now,
            group=group,
            write_rates=rates,
            rate_source=source,
            plan=plan,
            decisions=decisions,
            errors=tuple(dict.fromkeys((*errors, *more))),  # both may report the same outage
            known_consumers=known,
            capacity=self._capacity,
            replica_racks=racks,
        )

    def _list_known_consumers(self, now: float) -> frozenset[str]:
        return frozenset(n for n, at in self._last_seen.items() if now - at <= DEPARTED_CONSUMER_SHOWN_S)

    def _build_empty_snapshot(self, now: float, error: str) -> LiveGroupSnapshot:
        # without a broker every further request would wait for its timeout
        known = self._list_known_consumers(now)
        source = SOURCE_MEASURED
        return LiveGroupSnapshot(now, ObservedGroup(), {}, source, None, (), (error,), known, self._capacity)

    def _detect_share_group(self, decisions: Sequence[DecisionRecord]) -> None:
        # so that `top` and `explain` work without the setting `queue`
        is_share = bool(decisions) and decisions[-1].metrics.queue_kind == QueueKind.SHARE
        if is_share and self._settings.queue is None:
            self._settings = replace(self._settings, queue=QueueKind.SHARE)
            self._monitor.close()
            self._monitor = GroupMonitor(self._settings, self._clock)
