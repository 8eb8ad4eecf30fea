"""Time until each partition's backlog is read."""

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.model.observation import ObservedMember
from trimtab.sidecar.web.catch_up import estimate_catch_up

A, B, C = (TopicPartition("t", n) for n in range(3))


@pytest.mark.parametrize(
    ("backlogs", "times"),
    [
        ((100.0, 100.0), {A: 20.0, B: 20.0}),  # equal ones end together
        ((100.0, 300.0), {A: 20.0, B: 40.0}),  # the larger one has all of the spare rate at the end
        ((0.0, 300.0), {B: 30.0}),
        ((None, 300.0), {B: 30.0}),
    ],
)
def test_partitions_share_what_new_records_leave(
    backlogs: tuple[float | None, float], times: dict[TopicPartition, float]
) -> None:
    """Of 100 bytes/s, 90 are written: 10 are left for the backlogs."""
    loads = {p: PartitionLoad(45.0, None, backlog) for p, backlog in zip((A, B), backlogs, strict=True)}
    member = ObservedMember("m", "m", frozenset({A, B}))
    assert estimate_catch_up([member], loads, 100.0, {}) == pytest.approx(times)


def test_an_overloaded_consumer_never_catches_up() -> None:
    """A consumer without spare rate has no time; one that states a larger capacity has."""
    loads = {A: PartitionLoad(120.0, None, 40.0), B: PartitionLoad(120.0, None, 40.0), C: PartitionLoad()}
    members = [
        ObservedMember("m", "m", frozenset({A})),
        ObservedMember("n", "n", frozenset({B, C}), capacity=140.0),
    ]
    assert estimate_catch_up(members, loads, 100.0, {}) == {A: None, B: 2.0}


def test_what_is_late_is_read_before_the_rest() -> None:
    """With a grace of 2 s, 90 of 180 waiting bytes are late: they are read in half of the time."""
    loads = {A: PartitionLoad(45.0, None, 180.0), B: PartitionLoad(45.0, None, 90.0)}
    member = ObservedMember("m", "m", frozenset({A, B}))
    assert estimate_catch_up([member], loads, 100.0, {}, grace=2.0) == {A: 9.0}
    assert estimate_catch_up([member], loads, 100.0, {})[A] == 27.0


def test_a_consumer_that_reads_less_than_its_capacity_takes_longer() -> None:
    """What is measured counts: a backlog that grows is not read at this rate, whatever the capacity."""
    loads = {A: PartitionLoad(30.0, None, 180.0), B: PartitionLoad(30.0, None, 90.0)}
    member = ObservedMember("m", "m", frozenset({A, B}))
    assert estimate_catch_up([member], loads, 100.0, {A: 20.0, B: 33.0}) == {A: None, B: 30.0}
    assert estimate_catch_up([member], loads, 100.0, {A: 90.0}) == {A: 6.75, B: 4.5}
