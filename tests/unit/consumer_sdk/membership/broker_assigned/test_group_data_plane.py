"""librdkafka's consumer holds what it revokes until the release; without a broker."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as RawPartition

from support.ticking import Ticking
from trimtab.consumer_sdk.membership.broker_assigned.group_data_plane import GroupDataPlane

T = RawPartition("t", 0, 0)


class Message:
    """Fake of a record of partition 0, or of an error event."""

    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset, self._code = offset, code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


@pytest.fixture
def plane() -> Iterator[Any]:
    """A consumer that reads partition 0, from a broker that does not exist."""
    config = {
        "bootstrap.servers": "127.0.0.1:9",
        "group.id": "g",
        "group.protocol": "consumer",
        "log_level": 0,
    }
    plane = GroupDataPlane(config, Ticking())
    plane.incremental_assign([T])
    yield plane
    plane.close()


def offsets(partitions: list[RawPartition]) -> list[int]:
    return [p.offset for p in partitions]


def test_a_revoked_partition_is_stopped_at_its_release(plane: Any) -> None:
    """Any earlier stop would be taken as the release; it looks stopped all the same."""
    reported: list[Any] = []
    plane._hold_revocation(reported.append, plane, [T])
    assert reported == [{("t", 0)}]
    plane.incremental_unassign([T])
    plane.incremental_unassign([T])
    assert plane.assignment() == []
    assert offsets(DataConsumer.assignment(plane)) == [0]
    plane.release()
    assert DataConsumer.assignment(plane) == []


def test_a_partition_that_starts_again_before_the_release_starts_after_it(plane: Any) -> None:
    """As a batch that the table refused does, while other partitions move."""
    plane._hold_revocation(lambda _: None, plane, [RawPartition("t", 1)])
    plane.incremental_unassign([T])
    plane.incremental_assign([RawPartition("t", 0, 7)])
    assert offsets(plane.assignment()) == [7]
    assert offsets(DataConsumer.assignment(plane)) == [0]
    plane.release()
    assert offsets(DataConsumer.assignment(plane)) == [7]


def test_a_record_that_waits_has_not_been_read(plane: Any) -> None:
    """It is returned first, unless its partition is paused, sought or stopped meanwhile."""
    first, second = Message(5), Message(6)
    plane._waiting = [first, second]
    assert offsets(plane.position([T])) == [5]
    plane.pause([T])
    assert plane.consume(2, 0) == []
    plane.resume([T])
    assert plane.consume(1, 0) == [first]
    assert offsets(plane.position([T])) == [6]
    plane.incremental_unassign([T])
    assert plane.consume(1, 0) == []


def test_an_error_is_offered_to_the_member_first(plane: Any) -> None:
    """What it does not handle is the application's."""
    offered: list[int] = []
    plane.on_error = lambda error: offered.append(error.code()) or error.code() == KafkaError._FATAL
    others = [Message(1, KafkaError._PARTITION_EOF), Message(2)]
    assert plane._pass_errors([Message(0, KafkaError._FATAL), *others]) == others
    assert offered == [KafkaError._FATAL, KafkaError._PARTITION_EOF]
