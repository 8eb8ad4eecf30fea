"""Manages many groups: reads all of them round by round, and opens and closes them as their sources say.

1. A round begins every `interval` seconds, from start to start. It reads the groups that are not still
   being read in an earlier one (`SharedBrokers`, rule 2).
2. Each group's iteration runs in its own thread as soon as its readings are there.
3. Sources are asked before each round. A group that cannot be opened is tried again every
   `REOPEN_INTERVAL_S`, or once its settings change; a group that no source names any more is closed.
4. Only groups in shards of this sidecar are opened; those of a shard that goes to another one are closed.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Event, Lock
from typing import Any, Final, Protocol

from trimtab.common.errors import TrimtabError
from trimtab.sidecar.groups.managed_group import HISTORY_BYTES, MIN_HISTORY_BYTES, ManagedGroup, SharedParts
from trimtab.sidecar.groups.round_readings import RoundReadings
from trimtab.sidecar.leadership.group_shards import OwnedShards, ShardSource, SoleSidecar
from trimtab.sidecar.records.iteration_report import Reporter
from trimtab.sidecar.settings.group_list import GroupEntry
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.web.history import MAX_HISTORY_BYTES

log = logging.getLogger("trimtab.sidecar")

REOPEN_INTERVAL_S: Final = 60.0


class GroupSource(Protocol):
    """Names groups to manage."""

    def list_entries(self) -> Collection[GroupEntry] | None:
        """Return all groups of this source; None if they are not known now."""
        ...


class ListedGroups:
    """The groups of the setting `groups`, which do not change."""

    def __init__(self, entries: Sequence[GroupEntry]) -> None:
        self._entries = entries

    def list_entries(self) -> Collection[GroupEntry]:
        """Return the groups."""
        return self._entries


class GroupManager:
    """Runs rounds over the groups of its sources."""

    def __init__(
        self,
        interval: float,
        sources: Sequence[GroupSource],
        parts: SharedParts,
        reporter_builders: Sequence[Callable[[SidecarSettings], Reporter]] = (),
        shards: ShardSource | None = None,
    ) -> None:
        """Report each group also to what `reporter_builders` return when it opens."""
        self._interval = interval
        self._sources = sources
        self._parts = parts
        self._reporter_builders = reporter_builders
        self._shards = shards or SoleSidecar()
        self._owned = OwnedShards()  # of this round
        self._elsewhere: tuple[str, ...] = ()  # groups of other sidecars
        self._groups: dict[str, ManagedGroup] = {}
        self._entries: dict[int, Collection[GroupEntry]] = {}  # by source, as last known
        self._problems: dict[str, tuple[GroupEntry, str, float]] = {}  # with the time of the last try
        self._lock = Lock()
        self._reading: set[str] = set()  # groups whose readings are awaited
        self._running: set[str] = set()  # groups of the last round that have not ended their iteration
        self._round_started_at = 0.0
        self._last_readings: RoundReadings | None = None
        self.round_number = 0
        self.ended_round = 0  # the last one whose groups all ended their iterations
        self.round_seconds: float | None = None  # of the last round that all groups have ended
        parts.web_server.describe_groups_by(self.list_problems, self._describe)

    def run(self, wait: Callable[[float], bool]) -> None:
        """Run rounds until `wait(seconds)` returns True."""
        seconds = 0.0
        clock = self._parts.clock
        while not wait(seconds):
            started_at = clock.monotonic()
            self.run_round()
            seconds = max(0.0, self._interval - (clock.monotonic() - started_at))

    def run_round(self) -> None:
        """Update the groups, and read those that are not being read."""
        self._parts.web_server.record_progress()
        self._owned = self._shards.begin_round()
        self._update_groups()
        self._parts.control_topics.begin_round()
        with self._lock:
            chosen = [name for name in self._groups if name not in self._reading]
            self._reading.update(chosen)
            self._running = set(chosen)
            self._round_started_at = self._parts.clock.monotonic()
            self.round_number += 1
        topics_of = {name: self._groups[name].settings.topics for name in chosen}
        readings = self._parts.brokers.read_round(topics_of, self._offer_round)
        until = self._round_started_at + self._interval / 2
        # of the last round: this one's offsets are still on their way
        last, self._last_readings = self._last_readings, readings
        if last is not None:
            self._parts.brokers.sampler.sample_topics(last, until)

    def list_groups(self) -> tuple[str, ...]:
        """Return the groups that are open, sorted."""
        return tuple(sorted(self._groups))

    def is_responsible_for(self, group: str) -> bool:
        """Return whether a group is in a shard of this sidecar."""
        return self._owned.owns_group(group)

    def list_problems(self) -> Mapping[str, str]:
        """Return what is wrong with groups that are not open, or whose last iteration failed."""
        failing = {name: group.error for name, group in list(self._groups.items()) if group.error}
        return failing | {name: text for name, (_, text, _) in list(self._problems.items())}

    def close(self) -> None:
        """Close all groups; workers of those with `stop-workers` are stopped."""
        groups = list(self._groups.values())
        for group in groups:
            group.stop()
        for group in groups:
            # not the signal waiter: a second signal must not cut the wait short
            group.close(Event().wait if group.settings.stop_workers else None)
        self._groups.clear()

    def _offer_round(self, readings: RoundReadings, names: Collection[str]) -> None:
        with self._lock:
            self._reading.difference_update(names)
        for name in names:
            group = self._groups.get(name)
            if group is not None:
                group.offer(readings)

    def _record_done(self, name: str) -> None:
        with self._lock:
            self._running.discard(name)
            if not self._running:
                self.ended_round = self.round_number
                self.round_seconds = self._parts.clock.monotonic() - self._round_started_at

    def _update_groups(self) -> None:
        entries = self._list_entries()
        for name in [n for n in self._groups if n not in entries]:
            log.info("group %s is no longer to be managed by this sidecar", name)
            self._close_group(name)
        self._problems = {name: p for name, p in self._problems.items() if name in entries}
        size = HISTORY_BYTES // max(1, len(entries))
        self._parts.history_bytes = min(MAX_HISTORY_BYTES, max(MIN_HISTORY_BYTES, size))
        for entry in entries.values():
            self._update_group(entry)

    def _list_entries(self) -> dict[str, GroupEntry]:
        """Return the entry of each group of our shards; the first source that names it wins."""
        entries: dict[str, GroupEntry] = {}
        for number, source in enumerate(self._sources):
            listed = source.list_entries()
            if listed is not None:
                self._entries[number] = listed
            for entry in self._entries.get(number, ()):
                entries.setdefault(entry.group, entry)
        ours = {name: entry for name, entry in entries.items() if self._owned.owns_group(name)}
        self._elsewhere = tuple(sorted(entries.keys() - ours.keys()))
        return ours

    def _update_group(self, entry: GroupEntry) -> None:
        open_group = self._groups.get(entry.group)
        if open_group is not None and open_group.settings == entry.settings:
            return
        if open_group is not None:
            log.info("group %s: its settings changed", entry.group)
            self._close_group(entry.group)
        now = self._parts.clock.monotonic()
        known = self._problems.get(entry.group)
        if known is not None and known[0] == entry and now - known[2] < REOPEN_INTERVAL_S:
            return
        problem = entry.error if entry.settings is None else self._open_group(entry.settings)
        if not problem:
            self._problems.pop(entry.group, None)
            return
        if known is None or known[1] != problem:
            log.error("group %s is not managed: %s", entry.group, problem)
        self._problems[entry.group] = (entry, problem, now)

    def _open_group(self, settings: SidecarSettings) -> str:
        """Open a group; return what is wrong with it, empty if nothing is."""
        try:
            reporters = tuple(build(settings) for build in self._reporter_builders)
            self._groups[settings.group] = ManagedGroup(settings, self._parts, self._record_done, reporters)
        except TrimtabError as error:
            return str(error)
        except Exception as error:  # of a target's library: the other groups go on
            log.exception("group %s could not be opened", settings.group)
            return f"{type(error).__name__}: {error}"
        return ""

    def _close_group(self, name: str) -> None:
        group = self._groups.pop(name)
        with self._lock:
            self._reading.discard(name)
            self._running.discard(name)
        group.close()

    def _describe(self) -> dict[str, Any]:
        seconds = self.round_seconds
        return {
            "round": {
                "number": self.round_number,
                "ended": self.ended_round,
                "groups": len(self._groups),
                "seconds": None if seconds is None else round(seconds, 3),
            },
            "shards": {
                "owned": len(self._owned.numbers),
                "count": self._owned.count,
                "error": self._shards.get_error(),
            },
            "elsewhere": self._elsewhere,
        }
