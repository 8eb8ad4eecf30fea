"""Handover times and partition moves, as shown by the group's commits and members.

A new owner writes the duration of a handover into the metadata of its first commit, as JSON
{"handover": seconds, "at": epoch seconds}.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.model.observation import ObservedMember


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """A partition that changed its owner instance."""

    partition: TopicPartition
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class HandoverTracker:
    """Handovers counted so far, and the last owner of each partition."""

    since: float  # seconds since the epoch; older handovers do not count
    # The metadata stays until the next commit, so each handover is read many times and counted once.
    counted_until: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    owners: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

    def collect_handovers(
        self, commit_metadata: Mapping[TopicPartition, str]
    ) -> tuple[Mapping[TopicPartition, float], "HandoverTracker"]:
        """Return the durations of new handovers in seconds by partition, and the updated tracker."""
        counted = dict(self.counted_until)
        durations: dict[TopicPartition, float] = {}
        for partition, note in sorted(commit_metadata.items()):
            seconds, at = _parse_handover(note)
            if seconds is not None and at > counted.get(partition, self.since):
                counted[partition] = at
                durations[partition] = seconds
        return durations, replace(self, counted_until=counted)

    def collect_moves(
        self, members: Iterable[ObservedMember]
    ) -> tuple[tuple[PartitionMove, ...], "HandoverTracker"]:
        """Return the moves since the last call, and the updated tracker."""
        # By instance: a restarted consumer has another member id, but moves nothing.
        now = {p: m.instance for m in members for p in m.owned_partitions}
        before = {p: self.owners.get(p, name) for p, name in now.items()}
        moves = tuple(PartitionMove(p, before[p], now[p]) for p in sorted(now) if before[p] != now[p])
        return moves, replace(self, owners={**self.owners, **now})


def _parse_handover(metadata: str) -> tuple[float | None, float]:
    # other clients write their own metadata
    with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
        body: Any = json.loads(metadata)
        seconds, at = float(body["handover"]), float(body["at"])
        if 0 <= seconds < inf and at < inf:  # JSON has NaN and Infinity, after which no handover is newer
            return seconds, at
    return None, 0.0
