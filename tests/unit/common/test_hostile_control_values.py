"""Whatever bytes a control topic holds, decoding raises InvalidPayloadError or returns usable figures."""

import json
import math
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import pytest

from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction
from trimtab.sidecar.records.decision_record import DecisionRecord, SidecarIdentity

RATES = TopicWriteRates("g", "t", 1.0, 30.0, "offsets", {0: PartitionLoad(1.0)})
PLAN = GroupPlan(
    "g", 3, 1.0, 2, "mbf", 1000.0, 0.9, ("a",), ("why",), {"a": 1.0},
    target=PlanTarget(1, ("a", "b"), 1, {"t": (1, 0, 3)}), co_partitioned=(("t", "u"),),
)  # fmt: skip
DECISION = DecisionRecord(
    "g", 1, 1.0, 2.0, 1, 10.0, 3, ScalingAction.HOLD, ("why",), DecisionMetrics(required_rate=1.0), 1000.0,
    0.9, author=SidecarIdentity("id", "host", 7, 1.0),
)  # fmt: skip
VALUES = (RATES, PLAN, DECISION)
DEEP: Any = json.loads("[" * 900 + "]" * 900)
DEEP_JSON = "[" * 100_000 + "]" * 100_000
HUGE = 10**400
HOSTILE = (HUGE, -HUGE, math.nan, math.inf, -1, DEEP, {}, {"a": DEEP}, [[]], "x" * 3_000_000, True, None)


def changed(value: bytes, path: tuple[str, ...], hostile: Any) -> bytes:
    body = inner = json.loads(value)
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = hostile
    return json.dumps(body).encode()


def list_paths(body: Any) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, inner in body.items():
        found.append((name,))
        if isinstance(inner, dict):
            found += [(name, *path) for path in list_paths(inner)]
    return found


def use(value: Any) -> None:
    """What readers do with every value: compute, join, print."""
    assert len(repr(value)) < 10_000_000
    if isinstance(value, TopicWriteRates):
        figures = [f for load in value.partitions.values() for f in astuple(load) if f is not None]
        assert math.isfinite(sum(figures) * 1e9)
        assert all(0 <= number < 2**31 for number in value.partitions)
    if isinstance(value, GroupPlan):
        range(value.replicas)
        assert math.isfinite(value.capacity * value.headroom * value.replicas)
        "".join((*value.draining, *value.reasons, *value.capacities, *sum(value.co_partitioned, ())))
        if value.target is not None:
            "".join((*value.target.consumers, *value.target.partitions))
            lists = value.target.partitions.values()
            assert all(0 <= number <= value.target.size for numbers in lists for number in numbers)
    if isinstance(value, DecisionRecord):
        str(value.author)
        assert value.reason_text is not None
        math.ceil((value.metrics.required_rate or 0) / value.usable_capacity)
        range(value.number + value.iterations)
        "".join((*value.draining, *value.partitions_by_instance))
        "".join(one.format_line() for one in value.conditions)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda h: f"{type(h).__name__}-{str(h)[:12]}")
@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_one_hostile_field_spoils_its_record_only(value: Any, hostile: Any) -> None:
    """A hostile value in any field is refused by name, or ignored; nothing else is raised."""
    encoded = value.encode()
    for path in list_paths(json.loads(encoded)):
        refusal = ""
        try:
            use(type(value).decode(changed(encoded, path, hostile)))
        except InvalidPayloadError as error:
            refusal = str(error)
        assert len(refusal) < 1000


@pytest.mark.parametrize("decode", [type(v).decode for v in VALUES])
def test_deep_nesting_and_megabytes_are_refused(decode: Callable[[bytes], object]) -> None:
    """Nesting beyond any stack, megabytes of garbage, and figures of 5,000 digits raise the named error."""
    bodies = (DEEP_JSON, f'{{"v":1,"x":{DEEP_JSON}}}', '{"v":1,"time":1' + "0" * 5000 + "}", "x" * 5_000_000)
    for body in bodies:
        with pytest.raises(InvalidPayloadError) as refused:
            decode(body.encode())
        assert len(str(refused.value)) < 1000


def test_partition_numbers_fit_kafka() -> None:
    """A partition number that Kafka cannot have is refused before an array is made of it."""
    for number in ("-1", str(2**31), "9" * 30, "1.5", "x"):
        with pytest.raises(InvalidPayloadError):
            TopicWriteRates.decode(changed(RATES.encode(), ("partitions",), {number: {}}))
