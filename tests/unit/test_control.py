"""Values of the control topics: what makes no sense is refused where it comes in, by name."""

import json
from dataclasses import replace
from typing import Any

import pytest

from trimtab.common.control_topics.values import GroupPlan, PartitionLoad, TopicWriteRates
from trimtab.common.errors import InvalidPayloadError

SPEEDS = TopicWriteRates(
    "g", "t", 1.0, 30.0, "offsets", {0: PartitionLoad(1.0), 7: PartitionLoad()}
)
PLAN = GroupPlan("g", 3, 1.0, 2, "mbf", 1000.0, 0.9, ("a",), ("why",))
NONSENSE = [-1.0, float("nan"), float("inf"), float("-inf"), "1", True, [1]]


def changed(value: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(value), **fields}).encode()


def test_what_is_written_is_read() -> None:
    """Speeds and plans come back as they were."""
    assert TopicWriteRates.decode(SPEEDS.encode()) == SPEEDS
    assert GroupPlan.decode(PLAN.encode()) == PLAN


@pytest.mark.parametrize("speed", NONSENSE)
@pytest.mark.parametrize("field", ["bytes_per_s", "needed_bytes_per_s", "backlog_records"])
def test_a_speed_that_is_none_is_refused(field: str, speed: object) -> None:
    """Negative, NaN, infinite or no number: the error names topic, partition and figure."""
    body = changed(SPEEDS.encode(), partitions={"7": {field: speed}})
    with pytest.raises(
        InvalidPayloadError, match=f"{field} of t-7 is .*; it must be a finite number"
    ):
        TopicWriteRates.decode(body)


@pytest.mark.parametrize("number", NONSENSE)
@pytest.mark.parametrize("field", ["capacity", "headroom", "replicas", "epoch"])
def test_a_plan_that_cannot_be_is_refused(field: str, number: object) -> None:
    """A plan whose figures make no sense steers nobody."""
    with pytest.raises(InvalidPayloadError, match=f"{field} of the plan for g is"):
        GroupPlan.decode(changed(PLAN.encode(), **{field: number}))


@pytest.mark.parametrize("fields", [{"capacity": 0.0}, {"headroom": 0.0}, {"headroom": 1.5}])
def test_a_plan_without_room_is_refused(fields: dict[str, float]) -> None:
    """Neither a capacity nor a headroom of 0 can be packed by."""
    with pytest.raises(InvalidPayloadError, match="headroom at most 1"):
        GroupPlan.decode(changed(PLAN.encode(), **fields))


def test_capacities_of_instances_travel_only_where_there_are_some() -> None:
    """Without them a plan is what earlier readers know; with them it comes back as it was."""
    assert "capacities" not in json.loads(PLAN.encode())
    learned = replace(PLAN, capacities={"a": 900.0, "b": 1200.0})
    assert GroupPlan.decode(learned.encode()) == learned


def test_the_length_of_batches_travels_only_where_it_is_said() -> None:
    """Plans without one are what older readers know; one that cannot be is refused."""
    assert "batch" not in json.loads(PLAN.encode())
    paced = replace(PLAN, batch=4.5)
    assert GroupPlan.decode(paced.encode()) == paced
    with pytest.raises(InvalidPayloadError, match="batch of the plan"):
        GroupPlan.decode(replace(PLAN, batch=-1.0).encode())


@pytest.mark.parametrize("capacities", [{"a": 0.0}, {"a": -1.0}, {"a": "1"}, [1]])
def test_capacities_that_cannot_be_are_refused(capacities: object) -> None:
    """A plan with one of them steers nobody."""
    with pytest.raises(InvalidPayloadError):
        GroupPlan.decode(changed(PLAN.encode(), capacities=capacities))
