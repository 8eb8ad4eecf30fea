"""Values of the two control topics, as versioned JSON.

`trimtab.write-rates` is keyed by group and topic and holds `TopicWriteRates`; `trimtab.plans` is
keyed by group and holds a `GroupPlan`. Both topics are compacted: the newest value of a key is the
truth. A reader skips a version that it does not know, and a value with numbers that make no sense
(`InvalidPayloadError`), and keeps the value it has.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from trimtab.common.errors import InvalidPayloadError

CONTROL_VALUE_VERSION: Final = 1
WRITE_RATE_TOPIC: Final = "trimtab.write-rates"
PLAN_TOPIC: Final = "trimtab.plans"


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """One partition of a measurement; None where it is unknown.

    `needed_bytes_per_s` is what its consumer must sustain: write speed plus share of the backlog;
    `deviation_bytes_per_s` how much the write speed changes from one decision to the next (the
    standard deviation).
    """

    bytes_per_s: float | None = None
    records_per_s: float | None = None
    backlog_bytes: float | None = None
    backlog_records: int | None = None
    needed_bytes_per_s: float | None = None
    deviation_bytes_per_s: float | None = None

    @property
    def weight(self) -> float | None:
        """What a placement counts: the needed rate where there is one, else the write speed."""
        return self.bytes_per_s if self.needed_bytes_per_s is None else self.needed_bytes_per_s


@dataclass(frozen=True, slots=True)
class TopicWriteRates:
    """Write speeds of one topic; `time` is seconds since the epoch, `window` is seconds."""

    group: str
    topic: str
    time: float
    window: float
    source: str
    partitions: Mapping[int, PartitionLoad]

    @property
    def key(self) -> str:
        """Key of the record in the control topic."""
        return json.dumps([self.group, self.topic])

    def encode(self) -> bytes:
        """Return the record's value; equal values give equal bytes."""
        body = asdict(self)
        body["partitions"] = {str(p): asdict(s) for p, s in sorted(self.partitions.items())}
        return encode_control_value(body)

    @classmethod
    def decode(cls, value: bytes) -> "TopicWriteRates":
        """Read a record's value. Raises InvalidPayloadError."""
        body = decode_control_value(value, "write speeds")
        try:
            body["partitions"] = {int(p): PartitionLoad(**s) for p, s in body["partitions"].items()}
            speeds = cls(**body)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InvalidPayloadError(f"write speeds are malformed: {error}") from error
        for number, speed in speeds.partitions.items():
            for name, figure in asdict(speed).items():
                if figure is not None:
                    _check_non_negative(f"{name} of {speeds.topic}-{number}", figure)
        _check_non_negative(f"time of {speeds.topic}", speeds.time)
        return speeds


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What the sidecar decided for a group.

    `epoch` grows by one with each decision and makes the leader start a rebalance; `draining` holds
    instance names; `capacity` is bytes/s, `capacities` holds those of instances of which another
    one is known; `time` is seconds since the epoch. `batch` is how many seconds a sink may collect
    records at most, None for as long as it is set to.
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
    batch: float | None = None

    @property
    def key(self) -> str:
        """Key of the record in the control topic."""
        return self.group

    def encode(self) -> bytes:
        """Return the record's value; equal values give equal bytes.

        Without capacities of their own and a batch's length it is what earlier readers know.
        """
        body = asdict(self)
        if not self.capacities:
            del body["capacities"]
        if self.batch is None:
            del body["batch"]
        return encode_control_value(body)

    @classmethod
    def decode(cls, value: bytes) -> "GroupPlan":
        """Read a record's value. Raises InvalidPayloadError."""
        body = decode_control_value(value, "plan")
        try:
            body["draining"] = tuple(body.get("draining", ()))
            body["reasons"] = tuple(body.get("reasons", ()))
            body["capacities"] = dict(body.get("capacities", {}))
            plan = cls(**body)
        except (TypeError, ValueError) as error:
            raise InvalidPayloadError(f"plan is malformed: {error}") from error
        for name in ("epoch", "time", "replicas", "capacity", "headroom"):
            _check_non_negative(f"{name} of the plan for {plan.group}", getattr(plan, name))
        if plan.batch is not None:
            _check_non_negative(f"batch of the plan for {plan.group}", plan.batch)
        for name, capacity in plan.capacities.items():
            _check_non_negative(f"capacity of {name} in the plan for {plan.group}", capacity)
        if 0 in (plan.capacity, *plan.capacities.values()) or not 0 < plan.headroom <= 1:
            raise InvalidPayloadError(
                f"the plan for {plan.group} has a capacity of 0 ({plan.capacity}), or headroom "
                f"{plan.headroom}; they must be above 0, the headroom at most 1"
            )
        return plan


def _check_non_negative(what: str, value: Any) -> None:
    """Raise InvalidPayloadError for anything but a finite number from 0 on."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 <= value < math.inf):
        raise InvalidPayloadError(f"{what} is {value!r}; it must be a finite number from 0 on")


def encode_control_value(body: dict[str, Any]) -> bytes:
    """Return a value of a control topic: versioned, equal for equal bodies."""
    return json.dumps(
        {"v": CONTROL_VALUE_VERSION, **body}, sort_keys=True, separators=(",", ":")
    ).encode()


def decode_control_value(value: bytes, what: str) -> dict[str, Any]:
    """Read a value of a control topic; `what` names it in errors. Raises InvalidPayloadError."""
    try:
        body = json.loads(value)
    except ValueError as error:
        raise InvalidPayloadError(f"{what}: not JSON: {value[:80]!r}") from error
    if not isinstance(body, dict) or body.pop("v", None) != CONTROL_VALUE_VERSION:
        raise InvalidPayloadError(
            f"{what}: version is not {CONTROL_VALUE_VERSION}; upgrade this process: {value[:80]!r}"
        )
    return body
