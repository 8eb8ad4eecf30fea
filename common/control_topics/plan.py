"""Scaling plan of a group, as published to the plan topic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from trimtab.common.control_topics import versioned_json
from trimtab.common.control_topics.number_ranges import (
    Count,
    Figure,
    Fraction,
    Int32,
    PositiveFigure,
    Timestamp,
)
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.replica_names import get_replica

DEFAULT_RECORD_WEIGHTS: Final = (1.0, 0.0)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Decision of the sidecar for a group."""

    group: str
    epoch: Count  # a new one makes the group's leader rebalance; a plan that moves nothing keeps it
    time: Timestamp  # seconds since the epoch
    replicas: Int32
    heuristic: str
    capacity: PositiveFigure  # of one consumer, bytes/s
    headroom: Fraction = 1.0
    draining: tuple[str, ...] = ()  # replicas; see `drains`
    reasons: tuple[str, ...] = ()
    capacities: Mapping[str, PositiveFigure] = field(default_factory=dict[str, float])  # by instance, learned
    record_weights: tuple[Figure, Figure] = DEFAULT_RECORD_WEIGHTS  # of a byte and a record in `capacities`
    batch_max_age_s: Figure | None = None  # limit for a sink; None keeps the sink's own setting
    target: PlanTarget | None = field(default=None, repr=False)  # None: the leader decides
    # groups of topics whose partitions of one number share a consumer
    co_partitioned: tuple[tuple[str, ...], ...] = ()

    @property
    def key(self) -> str:
        """Record key."""
        return self.group

    def drains(self, instance: str) -> bool:
        """Return whether a consumer, or the replica that it belongs to, is to be drained."""
        return instance in self.draining or get_replica(instance) in self.draining

    def encode(self) -> bytes:
        """Return the record value; equal values give equal bytes."""
        body = {name: getattr(self, name) for name in self.__slots__}
        # left out if unset, as in plans of versions that lack it
        unset: tuple[object, ...] = (None, {}, (), DEFAULT_RECORD_WEIGHTS)
        for option in ("capacities", "record_weights", "batch_max_age_s", "target", "co_partitioned"):
            if body[option] in unset:
                del body[option]
        return versioned_json.encode_control_value(body)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a record value. Raises InvalidPayloadError."""
        return versioned_json.decode_control_value(cls, value, "plan")
