"""The consumer on a fake of librdkafka's: interrupts, resets, other threads' calls, left groups."""

import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk import Consumer, ConsumerClosedError, GroupMembershipError
from trimtab.consumer_sdk.client.client_adapters import to_partition
from trimtab.consumer_sdk.client.membership_events import PartitionsAssigned, PartitionsRevoked
from trimtab.consumer_sdk.consumer import consumer as consumer_module
from trimtab.consumer_sdk.membership.classic import member as member_module

T, U = TopicPartition("t", 0), TopicPartition("t", 1)


class Message:
    """Fake of a record, or of the event that the partition's offset is out of range."""

    def __init__(self, offset: int, at: TopicPartition = T, *, is_reset: bool = False) -> None:
        self._offset, self._at = offset, at
        self._error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range") if is_reset else None

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return self._at.topic

    def partition(self) -> int:
        return self._at.partition

    def offset(self) -> int:
        return self._offset


class Data:
    """Fake of librdkafka's consumer; `fetches` are what its calls of consume() return or raise."""

    def __init__(self) -> None:
        self.reading = {T, U}
        self.fetches: list[Any] = []
        self.resumed: list[TopicPartition] = []
        self.committed_error: BaseException | None = None
        self.log: list[tuple[str, TopicPartition, int]] = []
        self.log_end = 200

    def consume(self, _count: int, _timeout: float) -> list[Any]:
        answer = self.fetches.pop(0) if self.fetches else []
        return cast("list[Any]", answer() if callable(answer) else answer)

    def assignment(self) -> list[RawPartition]:
        return [RawPartition(*p) for p in sorted(self.reading)]

    def incremental_assign(self, partitions: list[RawPartition]) -> None:
        self.reading |= set(map(to_partition, partitions))
        self.log += [("assign", to_partition(p), p.offset) for p in partitions]

    def incremental_unassign(self, partitions: list[RawPartition]) -> None:
        self.reading -= set(map(to_partition, partitions))

    def seek(self, partition: RawPartition) -> None:
        if to_partition(partition) not in self.reading:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.log.append(("seek", to_partition(partition), partition.offset))

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return (100, self.log_end)

    def position(self, partitions: list[RawPartition]) -> list[RawPartition]:
        return partitions

    def committed(self, partitions: list[RawPartition], **_: Any) -> list[RawPartition]:
        if self.committed_error is not None:
            raise self.committed_error
        return partitions

    def offsets_for_times(self, partitions: list[RawPartition], **_: Any) -> list[RawPartition]:
        return partitions  # no broker answers: these are offsets below 0

    def list_topics(self, *_: Any, **__: Any) -> None:
        return None

    def pause(self, _partitions: list[RawPartition]) -> None:
        return None

    def resume(self, partitions: list[RawPartition]) -> None:
        self.resumed += map(to_partition, partitions)

    close = list_topics


class Member:
    """Fake of a group member that holds its lease and never leads."""

    is_rebalancing = False
    release_token = ""
    is_stopped = True

    def __init__(self, *_: Any) -> None:
        self.inbox: deque[Any] = deque()
        self.topics: list[str] = []

    def start(self, topics: list[str]) -> None:
        self.topics = topics

    def holds_lease(self) -> bool:
        return True

    def record_poll(self) -> None:
        return None

    def wait(self, _seconds: float) -> None:
        return None

    def confirm_release(self, _last: Any, _epoch: int, _began: float) -> None:
        return None

    stop = record_poll


@pytest.fixture
def data() -> Data:
    return Data()


@pytest.fixture
def consumer(data: Data, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a consumer that reads both partitions without a subscription."""
    monkeypatch.setattr(consumer_module, "create_data_plane", Mock(return_value=data))
    monkeypatch.setattr(member_module, "GroupMember", Member)
    config = {"group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "latest"}
    consumer: Any = Consumer({"bootstrap.servers": "127.0.0.1:1", **config})
    consumer._partitions.add_owned([T, U])
    return consumer


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_idle_call_keeps_no_lists(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call may wait for days."""
    kept: list[int] = []
    take_turn = consumer._take_turn

    def measure(fetched: list[Any], *more: Any) -> Any:
        kept.append(len(fetched))
        return take_turn(fetched, *more)

    monkeypatch.setattr(consumer, "_take_turn", measure)
    assert consumer.consume(1, timeout=0.1) == []
    assert len(kept) > 1
    assert set(kept) == {0}


def test_a_handled_reset_is_not_handled_again(consumer: Any, data: Data) -> None:
    """With `latest` the log's end of later would skip the records that were fetched in between."""

    def grow() -> None:
        data.log_end = 260
        interrupt()

    data.fetches = [[Message(5, is_reset=True)], [Message(200), Message(201)], grow]
    with pytest.raises(KeyboardInterrupt):
        consumer.consume(100, timeout=5)
    assert consumer.consume(1, timeout=0) == []
    assert data.log == [("assign", T, 200), ("seek", T, 200)]
    assert len(consumer.pop_offset_resets()) == 1


def test_an_interrupt_between_two_resets_repeats_the_second(consumer: Any, data: Data) -> None:
    """The first stays handled."""
    data.fetches = [[Message(5, is_reset=True), Message(6, U, is_reset=True)]]
    ends: list[Callable[[], tuple[int, int]]] = [
        lambda: (100, 200),
        cast("Any", interrupt),
        lambda: (100, 260),
    ]
    data.get_watermark_offsets = lambda *_, **__: ends.pop(0)()  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        consumer.consume(100, timeout=5)
    consumer.consume(100, timeout=0)
    assert data.log == [("assign", T, 200), ("assign", U, 260)]


def test_each_partition_is_rewound_alone(consumer: Any, data: Data) -> None:
    """A partition that another thread has stopped hides neither the others nor Ctrl-C."""

    def stop_first() -> None:
        data.reading = {U}
        interrupt()

    data.fetches = [[Message(7), Message(9, U)], stop_first]
    with pytest.raises(KeyboardInterrupt):
        consumer.consume(100, timeout=5)
    assert data.log == [("seek", U, 9)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("unexpected")])
def test_partitions_are_read_after_a_failed_assignment(
    consumer: Any, data: Data, error: BaseException
) -> None:
    """The event is not repeated, so owned partitions start without a known offset."""
    consumer.subscribe(["t"])
    consumer._member.inbox.append(PartitionsAssigned(frozenset({T}), 1))
    data.committed_error = error
    with pytest.raises(type(error)):
        consumer.consume(1, timeout=0)
    assert consumer._partitions.owned == data.reading == {T}
    assert data.resumed == [T]  # librdkafka keeps the pause of an earlier assignment


def test_a_subscription_ends_the_assignment_before_it(consumer: Any, data: Data) -> None:
    """Partitions that the group has not assigned are not read."""
    consumer.subscribe(["t"])
    assert (consumer._partitions.owned, data.reading) == (set(), set())


def test_a_close_that_interrupts_a_commit_waits_for_no_turn(consumer: Any) -> None:
    """The turn's thread may wait for the commit's lock; it closes when its turn ends."""
    in_turn, released = threading.Event(), []

    def revoke() -> None:
        with consumer._turn:
            in_turn.set()
            released.append(consumer._partitions.lock.acquire(timeout=5))
            consumer._partitions.lock.release()

    thread = threading.Thread(target=revoke)
    with consumer._partitions.lock:
        thread.start()
        in_turn.wait(5)
        consumer.close()
    thread.join()
    assert released == [True]
    assert consumer.consume(1, timeout=0) == []
    with pytest.raises(ConsumerClosedError):
        consumer.consume(1, timeout=0)


def test_a_callback_may_subscribe_again(consumer: Any) -> None:
    """Its unsubscribe() takes effect first."""

    def change(*_: Any) -> None:
        consumer.unsubscribe()
        consumer.subscribe(["u"])

    consumer.subscribe(["t"], on_assign=change)
    consumer._member.inbox.append(PartitionsAssigned(frozenset({T}), 1))
    first = consumer._member
    consumer.consume(1, timeout=0)
    assert consumer._member not in (None, first)
    assert consumer._member.topics == ["u"]


def test_records_are_not_returned_after_a_callback_has_left_the_group(consumer: Any, data: Data) -> None:
    """They belong to the next member, so leaving must not commit past them."""
    consumer.subscribe(["t"], on_assign=lambda *_: consumer.unsubscribe())
    consumer._member.inbox.append(PartitionsAssigned(frozenset({T}), 1))
    data.fetches = [[Message(7), Message(8)]]
    assert consumer.consume(2, timeout=0) == []
    assert ("seek", T, 7) in data.log
    assert consumer._member is None


def test_a_subscription_while_the_group_is_left_follows_it(consumer: Any) -> None:
    """Else the member that is being stopped would be started again, and forgotten."""
    consumer.subscribe(["t"], on_revoke=lambda *_: consumer.subscribe(["u"]))
    first = consumer._member
    first.inbox.append(PartitionsRevoked(frozenset({T}), threading.Event()))
    consumer.unsubscribe()
    assert consumer._member not in (None, first)
    assert consumer._member.topics == ["u"]


def test_queries_survive_a_close_in_another_thread(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They read the member once: it may be gone at the second read."""
    answers = iter([SimpleNamespace(member_id="m", generation_id=3, drain=lambda: None)] * 3)
    monkeypatch.setattr(Consumer, "_member", property(lambda _: next(answers)), raising=False)
    assert (consumer.memberid(), consumer.generation_id(), consumer.drain()) == ("m", 3, None)


def test_a_commit_has_the_membership_of_its_check(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is lost and assigned again meanwhile may have been read further by another."""
    consumer.subscribe(["t"])
    consumer._partitions.add_owned([T])
    commit = consumer._member.commit = Mock()
    send = consumer._commit_sync

    def regain(*arguments: Any) -> Any:
        consumer._partitions.membership_epoch = 1
        return send(*arguments)

    monkeypatch.setattr(consumer, "_commit_sync", regain)
    consumer.commit(offsets=[RawPartition(*T, 5)], asynchronous=False)
    assert commit.call_args.args[1] == 0


def test_offsets_stored_in_on_revoke_are_committed_with_the_release(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback that waits for workers stores later offsets than those of the revocation's begin."""
    monkeypatch.setattr(consumer_module, "create_data_plane", Mock(return_value=data))
    monkeypatch.setattr(member_module, "GroupMember", Member)
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.auto.offset.store": False}
    consumer: Any = Consumer(config)

    def finish(*_: Any) -> None:
        consumer.store_offsets(offsets=[RawPartition(*T, 9)])

    consumer.subscribe(["t"], on_revoke=finish)
    consumer._member.commit = committed = Mock()
    consumer._member.inbox.append(PartitionsAssigned(frozenset({T, U}), 1))
    consumer.consume(0, timeout=0)
    consumer.store_offsets(offsets=[RawPartition(*T, 5), RawPartition(*U, 3)])
    consumer._member.inbox.append(PartitionsRevoked(frozenset({T, U})))
    consumer.consume(0, timeout=0)
    assert {p: at.offset for p, at in committed.call_args[0][0].items()} == {T: 9, U: 3}


def test_a_last_commit_is_not_sent_late(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next owner commits a second later, and no broker refuses the former one in the same generation."""
    asked: list[bool] = []

    def commit(_offsets: Any, _epoch: int, timeout: float, still_owned: Callable[[Any], bool]) -> None:
        for waited in (0.0, timeout - 0.1, timeout):
            monkeypatch.setattr(consumer, "_clock", SimpleNamespace(monotonic=lambda w=waited: began + w))
            asked.append(still_owned(frozenset({T})))

    began = consumer._clock.monotonic()
    wall = consumer._clock.wall
    monkeypatch.setattr(consumer, "_clock", SimpleNamespace(monotonic=lambda: began, wall=wall))
    consumer._member = Member()
    consumer._member.commit = commit
    consumer._partitions.membership_epoch = 0
    consumer._commit_released({T: 5})
    assert asked == [True, True, False]


@pytest.mark.parametrize("holds", [True, False])
def test_a_pause_and_a_change_of_the_lease_come_one_after_the_other(
    consumer: Any, data: Data, monkeypatch: pytest.MonkeyPatch, *, holds: bool
) -> None:
    """Another thread pauses while a renewed lease resumes, or resumes while an ended one pauses."""
    done: list[str] = []
    consumer._member = Member()
    monkeypatch.setattr(consumer._member, "holds_lease", lambda: holds)
    consumer._suspended = holds
    mine, theirs = ("resume", "pause") if holds else ("pause", "resume")
    other = threading.Thread(target=lambda: getattr(consumer, theirs)([RawPartition(*T)]))

    def change(_: Any) -> None:
        other.start()
        other.join(0.2)  # it waits for this change
        done.append(mine)

    monkeypatch.setattr(data, mine, change)
    monkeypatch.setattr(data, theirs, lambda _: done.append(theirs))
    consumer._apply_lease()
    other.join()
    assert done == ([mine, theirs] if holds else [mine])


def test_an_error_that_is_raised_again_and_again_does_not_grow(consumer: Any) -> None:
    """An application may poll a consumer whose membership has ended for days."""
    consumer._failure = GroupMembershipError("removed")
    lengths = set()
    for _ in range(5):
        with pytest.raises(GroupMembershipError) as raised:
            consumer.poll(0)
        lengths.add(len(raised.traceback))
    assert len(lengths) == 1
