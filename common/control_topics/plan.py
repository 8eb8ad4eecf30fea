"""Scaling plan of a group, as published to the plan topic."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from trimtab.common.control_topics import versioned_json
from trimtab.common.errors import InvalidPayloadError


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Decision of the sidecar for a group."""

    group: str
    epoch: int  # a new one makes the group's leader rebalance; a plan that moves nothing keeps it
    time: float  # seconds since the epoch
    replicas: int
    heuristic: str
    capacity: float  # of one consumer, bytes/s
    headroom: float = 1.0
    draining: tuple[str, ...] = ()  # instance names
    reasons: tuple[str, ...] = ()
    capacities: Mapping[str, float] = field(default_factory=dict[str, float])  # by instance, learned
    batch_max_age_s: float | None = None  # limit for a sink; None keeps the sink's own setting

    @property
    def key(self) -> str:
        """Record key."""
        return self.group

    def encode(self) -> bytes:
        """Return the record value; equal values give equal bytes."""
        body = asdict(self)
        # an unset option is left out, as in plans of versions that lack it
        if not self.capacities:
            del body["capacities"]
        if self.batch_max_age_s is None:
            del body["batch_max_age_s"]
        return versioned_json.encode_control_value(body)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a record value. Raises InvalidPayloadError."""
        body = versioned_json.decode_control_value(value, "plan")
        try:
            body["draining"] = tuple(body.get("draining", ()))  # JSON has lists, a frozen plan tuples
            body["reasons"] = tuple(body.get("reasons", ()))
            body["capacities"] = dict(body.get("capacities", {}))
            plan = versioned_json.build_dataclass(cls, body)
        except (TypeError, ValueError) as error:
            raise InvalidPayloadError(f"plan is malformed: {error}") from error
        _check_plan(plan)
        return plan


def _check_plan(plan: GroupPlan) -> None:
    # one bad figure would fail later, within a rebalance of the whole group
    versioned_json.check_text("group or heuristic of a plan", plan.group, plan.heuristic)
    versioned_json.check_text(f"draining or reason, plan of {plan.group}", *plan.draining, *plan.reasons)
    for name in ("epoch", "time", "replicas", "capacity", "headroom"):
        versioned_json.check_non_negative(f"{name} of the plan for {plan.group}", getattr(plan, name))
    if plan.batch_max_age_s is not None:
        versioned_json.check_non_negative(f"batch_max_age_s, plan of {plan.group}", plan.batch_max_age_s)
    for name, capacity in plan.capacities.items():
        versioned_json.check_non_negative(f"capacity of {name} in the plan for {plan.group}", capacity)
    if 0 in (plan.capacity, *plan.capacities.values()) or not 0 < plan.headroom <= 1:
        raise InvalidPayloadError(
            f"the plan for {plan.group} has a capacity of 0 ({plan.capacity}), or headroom "
            f"{plan.headroom}; they must be above 0, the headroom at most 1"
        )
