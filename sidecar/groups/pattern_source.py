"""The groups of the cluster that `group-pattern` matches."""

import logging
from collections.abc import Collection
from typing import Final

from trimtab.common.clock import Clock
from trimtab.common.kafka_protocol.errors import KafkaRequestError
from trimtab.sidecar.kafka.group_batches import GroupBatchClient
from trimtab.sidecar.settings.group_list import GroupEntry, GroupListSettings

log = logging.getLogger("trimtab.sidecar")

LIST_INTERVAL_S: Final = 30.0


class PatternSource:
    """Lists the cluster's groups every `LIST_INTERVAL_S`; while that fails, the last list counts."""

    def __init__(self, listed: GroupListSettings, batches: GroupBatchClient, clock: Clock) -> None:
        self._listed = listed
        self._batches = batches
        self._clock = clock
        self._listed_at = float("-inf")
        self._entries: dict[str, GroupEntry] = {}
        self._last_error = ""

    def list_entries(self) -> Collection[GroupEntry] | None:
        """Return the matching groups."""
        now = self._clock.monotonic()
        if now - self._listed_at >= min(LIST_INTERVAL_S, 3 * self._listed.process.interval):
            self._listed_at = now
            self._list_groups()
        return tuple(self._entries.values())

    def _list_groups(self) -> None:
        try:
            existing = self._batches.list_groups()
        except KafkaRequestError as error:
            if str(error) != self._last_error:
                log.warning("the cluster's groups could not be listed: %s", error)
            self._last_error = str(error)
            return
        self._last_error = ""
        known = self._entries  # settings are checked once: they depend on the group's name alone
        new = tuple(group for group in existing if group not in known)
        matched = {entry.group: entry for entry in self._listed.match_groups(new)}
        self._entries = {group: known[group] for group in existing if group in known} | matched
