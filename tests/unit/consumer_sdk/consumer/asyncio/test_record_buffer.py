"""Records between fetch and application: positions, revocations, seeks, parked partitions."""

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.asyncio.record_buffer import RecordBuffer, to_record

T, U = TopicPartition("t", 0), TopicPartition("t", 1)


class Message:
    """Fake of confluent-kafka's message."""

    def __init__(self, offset: int, at: TopicPartition = T, value: bytes | None = b"v") -> None:
        self._offset, self._at, self._value = offset, at, value
        self.time = (TIMESTAMP_CREATE_TIME, 5)

    def topic(self) -> str:
        return self._at.topic

    def partition(self) -> int:
        return self._at.partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return self.time

    def headers(self) -> None:
        return None


def messages(*offsets: int, at: TopicPartition = T) -> Any:
    return [Message(offset, at) for offset in offsets]


def convert(message: Any) -> Any:
    return to_record(message, None, None)


@pytest.fixture
def buffer() -> RecordBuffer:
    buffer = RecordBuffer(convert)
    buffer.readable |= {T, U}
    return buffer


def take(buffer: RecordBuffer, *partitions: TopicPartition, limit: int | None = None) -> Any:
    return {p: [r.offset for r in records] for p, records in buffer.take(partitions, limit).items()}


def test_positions_follow_what_is_taken(buffer: RecordBuffer) -> None:
    """A record counts once it is taken; until then the first fetched one is next."""
    buffer.add(T, messages(5, 6, 7))
    assert (buffer.positions, buffer.next_offset(T), buffer.next_offset(U)) == ({}, 5, None)
    assert take(buffer, limit=2) == {T: [5, 6]}
    assert (buffer.positions, buffer.next_offset(T), buffer.removed, len(buffer)) == ({T: 7}, 7, 2, 1)


def test_drained_partitions_queue_up_again(buffer: RecordBuffer) -> None:
    """A partition that is always full does not keep the others waiting for ever."""
    buffer.add(T, messages(0))
    buffer.add(U, messages(0, at=U))
    assert take(buffer, limit=1) == {T: [0]}
    buffer.add(T, messages(1))
    assert [buffer.take_one(()).partition for _ in range(2)] == [1, 0]  # type: ignore[union-attr]
    assert buffer.take_one(()) is None


def test_refilled_partitions_take_turns(buffer: RecordBuffer) -> None:
    """A partition that is never drained does not keep the others waiting, whichever call takes."""
    buffer.add(U, messages(0, 1, at=U))
    buffer.add(T, messages(*range(9)))
    assert [buffer.take_one(()).partition for _ in range(5)] == [1, 0, 1, 0, 0]  # type: ignore[union-attr]
    buffer.add(U, messages(2, 3, at=U))
    assert [take(buffer, limit=1) for _ in range(3)] == [{T: [3]}, {U: [2]}, {T: [4]}]
    assert take(buffer, limit=3) == {U: [3], T: [5, 6]}


def test_only_wanted_partitions_are_taken(buffer: RecordBuffer) -> None:
    """The others stay."""
    buffer.add(T, messages(0))
    buffer.add(U, messages(3, 4, at=U))
    assert take(buffer, U) == {U: [3, 4]}
    assert buffer.take_one((U,)) is None
    assert take(buffer) == {T: [0]}


def test_a_revoked_partition_keeps_nothing(buffer: RecordBuffer) -> None:
    """Its records are dropped, also those on their way; its position is kept for the commit."""
    buffer.add(T, messages(0, 1))
    buffer.take_one(())
    buffer.drop([T])
    buffer.add(T, messages(2))
    assert (len(buffer), buffer.removed, buffer.take_positions([T, U])) == (0, 3, {T: 1})
    assert buffer.positions == {}


def test_a_seek_outdates_what_was_fetched(buffer: RecordBuffer) -> None:
    """Records that arrive before the last of several seeks is carried out are dropped."""
    buffer.add(T, messages(0, 1))
    end_first, end_second = buffer.begin_seek(T, 9), buffer.begin_seek(T, 4)
    buffer.add(T, messages(2))
    end_first()
    buffer.add(T, messages(9))
    end_second()
    buffer.add(T, messages(4))
    assert (buffer.next_offset(T), buffer.removed, take(buffer)) == (4, 4, {T: [4]})


def test_a_revocation_ends_a_seek(buffer: RecordBuffer) -> None:
    """The partition's next assignment does not wait for it, and its late end does not end a later seek."""
    end_seek = buffer.begin_seek(T, 9)
    buffer.drop([T])
    buffer.readable.add(T)
    buffer.add(T, messages(0))
    assert take(buffer) == {T: [0]}
    buffer.begin_seek(T, 4)
    end_seek()
    buffer.add(T, messages(1))
    assert take(buffer) == {}


def test_a_parked_partition_continues_where_it_was(buffer: RecordBuffer) -> None:
    """The first dropped record is where reading continues, whatever arrives meanwhile."""
    buffer.add(T, messages(3, 4))
    buffer.park(T)
    buffer.add(T, messages(5))
    assert (take(buffer), buffer.next_offset(T), buffer.removed) == ({}, 3, 3)
    buffer.park(T)
    assert buffer.unpark(T) == 3
    buffer.add(T, messages(3))
    assert take(buffer) == {T: [3]}


def test_a_seek_of_a_parked_partition_wins(buffer: RecordBuffer) -> None:
    """What was dropped before the seek no longer counts."""
    buffer.add(T, messages(3))
    buffer.park(T)
    buffer.begin_seek(T, 8)()
    assert buffer.unpark(T) is None
    assert buffer.next_offset(T) == 8


def test_a_rejected_record_stays(buffer: RecordBuffer) -> None:
    """The records before it are returned, then its error is raised until a seek passes it."""

    def decode(value: bytes | None) -> int:
        return int(value or b"")

    buffer = RecordBuffer(lambda message: to_record(message, None, decode))
    buffer.readable.add(T)
    buffer.add(T, [Message(0, value=b"7"), Message(1, value=b"x"), Message(2, value=b"8")])  # type: ignore[list-item]
    assert take(buffer) == {T: [0]}
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            buffer.take((), None)
        with pytest.raises(ValueError, match="invalid literal"):
            buffer.take_one(())
    assert buffer.positions == {T: 1}


def test_a_tombstone_has_no_value() -> None:
    """None has size -1; a record without a time has -1."""
    message = Message(0, value=None)
    message.time = (TIMESTAMP_NOT_AVAILABLE, 0)
    record = convert(message)
    assert (record.value, record.serialized_value_size, record.timestamp, record.headers) == (
        None,
        -1,
        -1,
        (),
    )
