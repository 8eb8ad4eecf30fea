"""Scaling plan of a group, as published to the plan topic."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from trimtab.common.control_topics.codec import (
    build_dataclass,
    check_non_negative,
    check_text,
    decode_control_value,
    encode_control_value,
)
from trimtab.common.errors import InvalidPayloadError


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Decision of the sidecar for a group, valid from `time` (seconds since the epoch).

    `epoch` grows by one with each decision; the group's leader then starts a rebalance. `capacity`
    is in bytes/s; `capacities` overrides it by instance. `draining` holds instance names.
    `batch_max_age_s` limits how long a sink collects a batch; None keeps the sink's own setting.
    """

    group: str
    epoch: int
    time: float
    replicas: int
    heuristic: str
    capacity: float
    headroom: float = 1.0
    draining: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    capacities: Mapping[str, float] = field(default_factory=dict[str, float])
    batch_max_age_s: float | None = None

    @property
    def key(self) -> str:
        """Record key."""
        return self.group

    def encode(self) -> bytes:
        """Return the record value; equal values give equal bytes. Unset options are left out."""
        body = asdict(self)
        if not self.capacities:
            del body["capacities"]
        if self.batch_max_age_s is None:
            del body["batch_max_age_s"]
        return encode_control_value(body)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Read a record value. Raises InvalidPayloadError."""
        body = decode_control_value(value, "plan")
        try:
            body["draining"] = tuple(body.get("draining", ()))
            body["reasons"] = tuple(body.get("reasons", ()))
            body["capacities"] = dict(body.get("capacities", {}))
            plan = build_dataclass(cls, body)
        except (TypeError, ValueError) as error:
            raise InvalidPayloadError(f"plan is malformed: {error}") from error
        _check_plan(plan)
        return plan


def _check_plan(plan: GroupPlan) -> None:
    check_text("group or heuristic of a plan", plan.group, plan.heuristic)
    check_text(f"draining or reason of the plan for {plan.group}", *plan.draining, *plan.reasons)
    for name in ("epoch", "time", "replicas", "capacity", "headroom"):
        check_non_negative(f"{name} of the plan for {plan.group}", getattr(plan, name))
    if plan.batch_max_age_s is not None:
        check_non_negative(f"batch_max_age_s of the plan for {plan.group}", plan.batch_max_age_s)
    for name, capacity in plan.capacities.items():
        check_non_negative(f"capacity of {name} in the plan for {plan.group}", capacity)
    if 0 in (plan.capacity, *plan.capacities.values()) or not 0 < plan.headroom <= 1:
        raise InvalidPayloadError(
            f"the plan for {plan.group} has a capacity of 0 ({plan.capacity}), or headroom "
            f"{plan.headroom}; they must be above 0, the headroom at most 1"
        )
