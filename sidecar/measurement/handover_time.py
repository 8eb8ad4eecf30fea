"""Handover times and moves, as the group itself tells them.

A new owner writes the seconds that a handover took into the metadata of its first commit, as JSON
{"handover": seconds, "at": epoch seconds}; each is counted once. A move is a partition that another
instance reads than the last one that did.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.measurement.observation import ObservedMember


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """A partition that another instance reads now."""

    partition: TopicPartition
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class HandoverTracker:
    """What was counted already: handovers up to a time by partition, and who read each one last."""

    since: float  # seconds since the epoch; older handovers do not count
    counted_until: Mapping[TopicPartition, float] = field(
        default_factory=dict[TopicPartition, float]
    )
    owners: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

    def collect_handovers(
        self, commit_metadata: Mapping[TopicPartition, str]
    ) -> tuple[tuple[float, ...], "HandoverTracker"]:
        """Return the seconds of handovers not counted yet, and the ledger with them counted."""
        counted, fresh = dict(self.counted_until), list[float]()
        for partition, note in sorted(commit_metadata.items()):
            seconds, at = _parse_handover(note)
            if seconds is not None and at > counted.get(partition, self.since):
                counted[partition] = at
                fresh.append(seconds)
        return tuple(fresh), replace(self, counted_until=counted)

    def collect_moves(
        self, members: Iterable[ObservedMember]
    ) -> tuple[tuple[PartitionMove, ...], "HandoverTracker"]:
        """Return the partitions that changed their reader since, and the ledger after it."""
        now = {p: r.instance for r in members for p in r.owned_partitions}
        moved = tuple(
            PartitionMove(partition, before, name)
            for partition, name in sorted(now.items())
            if (before := self.owners.get(partition, name)) != name
        )
        return moved, replace(self, owners={**self.owners, **now})


def _parse_handover(metadata: str) -> tuple[float | None, float]:
    with suppress(ValueError, TypeError, KeyError):
        body: Any = json.loads(metadata)
        return float(body["handover"]), float(body["at"])
    return None, 0.0
