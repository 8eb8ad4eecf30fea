"""Codec of control-topic values: round trips, versions, and rejection of invalid values by name."""

import json
from dataclasses import replace
from typing import Any

import pytest

from trimtab.common.control_topics import versioned_json
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import InvalidPayloadError

RATES = TopicWriteRates("g", "t", 1.0, 30.0, "offsets", {0: PartitionLoad(1.0), 7: PartitionLoad()})
PLAN = GroupPlan("g", 3, 1.0, 2, "mbf", 1000.0, 0.9, ("a",), ("why",))
NONSENSE = [-1.0, float("nan"), float("inf"), float("-inf"), "1", True, [1]]


def changed(value: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(value), **fields}).encode()


def test_values_round_trip() -> None:
    """Write rates and plans are decoded as they were encoded."""
    assert TopicWriteRates.decode(RATES.encode()) == RATES
    assert GroupPlan.decode(PLAN.encode()) == PLAN


@pytest.mark.parametrize("rate", NONSENSE)
@pytest.mark.parametrize("field", ["bytes_per_s", "required_bytes_per_s", "backlog_records"])
def test_invalid_rates_are_refused(field: str, rate: object) -> None:
    """Negative, NaN, infinite or non-numeric values are named with topic, partition and field."""
    body = changed(RATES.encode(), partitions={"7": {field: rate}})
    with pytest.raises(
        InvalidPayloadError, match=rf"write rates of g, t: partitions\.7\.{field} is .*: Input should be"
    ):
        TopicWriteRates.decode(body)


@pytest.mark.parametrize("number", NONSENSE)
@pytest.mark.parametrize("field", ["capacity", "headroom", "replicas", "epoch"])
def test_invalid_plan_figures_are_refused(field: str, number: object) -> None:
    """A plan with an invalid figure is not applied."""
    with pytest.raises(InvalidPayloadError, match=f"plan of g: {field} is"):
        GroupPlan.decode(changed(PLAN.encode(), **{field: number}))


@pytest.mark.parametrize("fields", [{"capacity": 0.0}, {"headroom": 0.0}, {"headroom": 1.5}])
def test_a_plan_without_capacity_is_refused(fields: dict[str, float]) -> None:
    """Capacity and headroom must be above 0, the headroom at most 1."""
    with pytest.raises(InvalidPayloadError, match=r"plan of g: (capacity|headroom) is .*: Input should be"):
        GroupPlan.decode(changed(PLAN.encode(), **fields))


def test_instance_capacities_are_encoded_only_if_set() -> None:
    """An empty mapping is left out; a filled one round-trips."""
    assert "capacities" not in json.loads(PLAN.encode())
    learned = replace(PLAN, capacities={"a": 900.0, "b": 1200.0})
    assert GroupPlan.decode(learned.encode()) == learned


def test_batch_max_age_is_encoded_only_if_set() -> None:
    """None is left out, a value round-trips, a negative one is refused."""
    assert "batch_max_age_s" not in json.loads(PLAN.encode())
    limited = replace(PLAN, batch_max_age_s=4.5)
    assert GroupPlan.decode(limited.encode()) == limited
    with pytest.raises(InvalidPayloadError, match="plan of g: batch_max_age_s is"):
        GroupPlan.decode(replace(PLAN, batch_max_age_s=-1.0).encode())


@pytest.mark.parametrize("capacities", [{"a": 0.0}, {"a": -1.0}, {"a": "1"}, [1]])
def test_invalid_instance_capacities_are_refused(capacities: object) -> None:
    """A plan with an invalid instance capacity is not applied."""
    with pytest.raises(InvalidPayloadError):
        GroupPlan.decode(changed(PLAN.encode(), capacities=capacities))


@pytest.mark.parametrize("value", [RATES, PLAN])
def test_unknown_fields_are_ignored(value: TopicWriteRates | GroupPlan) -> None:
    """Fields added by a later version, in the value and in its parts, do not affect this reader."""
    later = {"added": {"any": [1]}}
    body = json.loads(value.encode())
    for load in body.get("partitions", {}).values():
        load.update(later)
    assert value.decode(json.dumps({**body, **later}).encode()) == value


def test_readers_of_two_versions_read_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2 reads version 1; version 1 reads what version 2 marks as compatible with it."""
    compatible = changed(PLAN.encode(), v=2, min_reader_version=1, added="x")
    incompatible = changed(PLAN.encode(), v=2, added="x")
    assert GroupPlan.decode(compatible) == PLAN
    with pytest.raises(
        InvalidPayloadError,
        match=r"plan: format version 2 needs a reader of version 2, .* reads up to 1; upgrade",
    ):
        GroupPlan.decode(incompatible)
    monkeypatch.setattr(versioned_json, "CONTROL_VALUE_VERSION", 2)
    for value in (compatible, incompatible, changed(PLAN.encode(), v=1)):
        assert GroupPlan.decode(value) == PLAN


@pytest.mark.parametrize("fields", [{"v": None}, {"v": "1"}, {"v": True}, {"min_reader_version": "x"}])
def test_a_value_without_a_version_is_refused(fields: dict[str, Any]) -> None:
    """The error says that the version is missing."""
    with pytest.raises(InvalidPayloadError, match=r"plan: (v|min_reader_version) is .* a valid integer"):
        GroupPlan.decode(changed(PLAN.encode(), **fields))


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b"[]", b"1", b"null", b"[" * 100_000])
def test_other_bytes_are_refused(value: bytes) -> None:
    """Any other bytes raise InvalidPayloadError, so that readers skip that record alone."""
    for decode in (GroupPlan.decode, TopicWriteRates.decode):
        with pytest.raises(InvalidPayloadError):
            decode(value)


@pytest.mark.parametrize("field", ["group", "topic", "source"])
def test_names_of_write_rates_are_text(field: str) -> None:
    """A name of another type would fail later, at the look-up, and take further records with it."""
    with pytest.raises(InvalidPayloadError, match="Input should be a valid string"):
        TopicWriteRates.decode(changed(RATES.encode(), **{field: ["t"]}))


@pytest.mark.parametrize("fields", [{"group": 1}, {"heuristic": None}, {"draining": [[]]}])
def test_names_of_a_plan_are_text(fields: dict[str, Any]) -> None:
    """A group, a heuristic or an instance of another type is refused."""
    with pytest.raises(InvalidPayloadError, match="Input should be a valid string"):
        GroupPlan.decode(changed(PLAN.encode(), **fields))
