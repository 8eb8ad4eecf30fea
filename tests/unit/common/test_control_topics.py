"""Codec of control-topic values: round trips, versions, and rejection of invalid values by name."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from trimtab.common.control_topics import versioned_json
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.record_parts import MAX_RECORD_BYTES, PartAssembler, split_value
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import InvalidPayloadError

RATES = TopicWriteRates("g", "t", 1.0, 30.0, "offsets", {0: PartitionLoad(1.0), 7: PartitionLoad()})
PLAN = GroupPlan("g", 3, 1.0, 2, "mbf", 1000.0, 0.9, ("a",), ("why",))
TARGET = PlanTarget(5, ("a", "b"), 1, {"orders": (1, 0, 3), "payments": (2,)})
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
    assert "record_weights" not in json.loads(PLAN.encode())
    learned = replace(PLAN, capacities={"a": 900.0, "b": 1200.0}, record_weights=(0.5, 200.0))
    assert GroupPlan.decode(learned.encode()) == learned


def test_batch_max_age_is_encoded_only_if_set() -> None:
    """None is left out, a value round-trips, a negative one is refused."""
    assert "batch_max_age_s" not in json.loads(PLAN.encode())
    limited = replace(PLAN, batch_max_age_s=4.5)
    assert GroupPlan.decode(limited.encode()) == limited
    with pytest.raises(InvalidPayloadError, match="plan of g: batch_max_age_s is"):
        GroupPlan.decode(replace(PLAN, batch_max_age_s=-1.0).encode())


def target_of(consumers: int, topics: int, partitions: int) -> PlanTarget:
    chance = Random(5)  # noqa: S311 - as placed by load: no pattern to compress
    numbers = tuple(chance.randrange(consumers) + 1 for _ in range(partitions))
    names = tuple(f"orders-worker-7d9f8b6c5d-{n:05}" for n in range(consumers))
    return PlanTarget(1, names, 0, {f"orders-{topic}": numbers for topic in range(topics)})


def test_a_plan_without_a_target_has_the_bytes_of_versions_without_targets() -> None:
    """And a plan with one is read by these, which ignore it."""
    assert PLAN.encode() == (
        b'{"capacity":1000.0,"draining":["a"],"epoch":3,"group":"g","headroom":0.9,"heuristic":"mbf",'
        b'"reasons":["why"],"replicas":2,"time":1.0,"v":1}'
    )
    planned = replace(PLAN, target=TARGET, co_partitioned=(("orders", "payments"),))
    body = json.loads(planned.encode())
    assert {key: body[key] for key in json.loads(PLAN.encode())} == json.loads(PLAN.encode())


def test_a_target_round_trips() -> None:
    """With names, places, partitions that it leaves open, and topics that move together."""
    planned = replace(PLAN, target=TARGET, co_partitioned=(("orders", "payments"),))
    assert GroupPlan.decode(planned.encode()) == planned
    assert "orders" not in repr(replace(PLAN, target=TARGET))  # it may have 100,000 numbers


def test_a_target_is_built_from_an_assignment() -> None:
    """Consumers are numbered by name, then come the places "+1", "+2"; 0 is a partition of no consumer."""
    assignment = {"b": [("t", 0), ("t", 3)], "a": [("u", 0)], "+2": [("t", 1)], "+1": []}
    built = PlanTarget.from_assignment(4, ["b", "a"], 2, assignment)
    assert built == PlanTarget(4, ("a", "b"), 2, {"t": (2, 4, 0, 2), "u": (1,)})


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"consumers": ["a", "a"]}, "a consumer's name is empty or repeated"),
        ({"consumers": ["a", ""]}, "a consumer's name is empty or repeated"),
        ({"places": 100_001}, "less than or equal to 100000"),
        ({"places": -1}, "greater than or equal to 0"),
        ({"revision": True}, "a valid integer"),
        ({"partitions": {"t": [1, 4]}}, "topic 't' names consumer 4 of 3"),
        ({"partitions": {"t": [-1]}}, "greater than or equal to 0"),
        ({"partitions": {"t": [1.0]}}, "a valid integer"),
        ({"partitions": {"t": [0] * 1_000_001}}, "topic 't' has 1000001 partitions"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_target_that_nobody_could_carry_out_is_refused(fields: dict[str, Any], error: str) -> None:
    """Its plan is not applied: the one before stays in force."""
    target = {"revision": 1, "consumers": ["a", "b"], "places": 1, "partitions": {"t": [0, 1, 3]}}
    GroupPlan.decode(changed(PLAN.encode(), target=target))
    with pytest.raises(InvalidPayloadError, match=rf"plan of g: target.*{error}") as refused:
        GroupPlan.decode(changed(PLAN.encode(), target=target | fields))
    assert len(str(refused.value)) < 1000


def test_a_plan_of_100_000_partitions_on_1_000_consumers_fits_into_one_record() -> None:
    """So versions before read it as they read any plan."""
    planned = replace(PLAN, target=target_of(1000, 10, 10_000))
    ((key, record),) = split_value("g", PLAN.key, planned.encode())
    assert (key, record) == (PLAN.key, planned.encode())
    assert len(record) < 500_000
    assert GroupPlan.decode(record) == planned


def test_a_plan_of_1_000_000_partitions_is_several_records() -> None:
    """Half of them leave the plan before in force."""
    planned = replace(PLAN, target=target_of(1000, 1, 1_000_000))
    records = [record for _, record in split_value("g", PLAN.key, planned.encode())]
    assert max(map(len, records)) <= MAX_RECORD_BYTES
    assert len(records) > 1
    assembler = PartAssembler("g")
    assert [assembler.add_record(record) for record in records[:-1]] == [None] * (len(records) - 1)
    assert GroupPlan.decode(assembler.add_record(records[-1]) or b"") == planned


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
