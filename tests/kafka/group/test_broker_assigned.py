"""A consumer of the new protocol (KIP-848) on a real broker: lease, fences, epochs, static members."""

import os
import signal
from collections.abc import Callable
from contextlib import closing
from math import inf
from threading import enumerate as list_threads
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient, NewTopic

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.consumer_sdk import Consumer, GroupMembershipError
from trimtab.consumer_sdk.errors import UnsupportedByProtocolError
from trimtab.consumer_sdk.membership.broker_assigned import broker_assigned_member

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]
ONE, TWO = {"group_instance_id": "one"}, {"group_instance_id": "two"}


@pytest.fixture
def config(config: dict[str, Any], use_protocol: Any) -> dict[str, Any]:
    """Settings of the new protocol, with the shortest timeouts."""
    chosen: dict[str, Any] = use_protocol(config, "consumer")
    return chosen


@pytest.fixture
def long_session(config: dict[str, Any], use_protocol: Any) -> None:
    """Sessions of the group last longer than a start on a busy machine."""
    use_protocol({**config, "session.timeout.ms": 30_000}, "consumer")


def test_statistics_prove_heartbeats_and_silence_ends_the_lease(
    topic: Any, config: dict[str, Any], feed: Any, eventually: Eventually
) -> None:
    """The lease is renewed without an event; without a proof no record is returned, until there is one."""
    name = topic(partitions=1)
    feed.write(name, 1, 1)
    with closing(Consumer(config)) as consumer:
        consumer.subscribe([name])
        assert len(consumer.consume(1, timeout=20)) == 1
        member = consumer._member
        proof = member._plane.heartbeats
        begun = member._assigned_contact
        eventually(lambda: consumer.consume(1, 0.1) == [] and proof.last_stable_contact > begun + 1)
        kept, member._assigned_contact = member._assigned_contact, -inf
        member._plane.heartbeats = type(proof)()
        add, member._plane.heartbeats.add_sample = member._plane.heartbeats.add_sample, lambda _sample: None
        feed.write(name, 1, 1)
        assert consumer.consume(1, timeout=1) == []
        assert not consumer.holds_lease()
        member._plane.heartbeats.add_sample = add
        assert [m.offset() for m in consumer.consume(1, timeout=20)] == [1]
        assert consumer.holds_lease()
        assert kept < proof.last_contact


def test_commits_during_rebalances_have_the_newest_epoch(
    topic: Any, config: dict[str, Any], start: Any, eventually: Eventually
) -> None:
    """A rebalance begins a new epoch, of which this member learns later; a commit waits for it."""
    name = topic(partitions=4)
    with closing(Consumer({**config, "enable.auto.commit": False})) as consumer:
        consumer.subscribe([name])
        eventually(lambda: consumer.consume(0, 0.1) == [] and len(consumer.assignment()) == 4)
        other = start("other", [name])
        committed: set[int] = set()
        while len(other.owned) < 2:
            consumer.consume(1, 0.02)
            offsets = [RawPartition(name, p.partition, 0) for p in consumer.assignment()[:1]]
            consumer.commit(offsets=offsets, asynchronous=False)
            committed.add(consumer.generation_id())
        eventually(lambda: consumer.consume(0, 0.1) == [] and len(consumer.assignment()) == 2)
        assert consumer.generation_id() > min(committed)


def test_a_released_partition_cannot_be_committed(
    topic: Any, config: dict[str, Any], start: Any, feed: Any, eventually: Eventually
) -> None:
    """The broker would accept it with the member's epoch, and rewind the next owner."""
    name = topic(partitions=2)
    feed.write(name, 2, 20)
    with closing(Consumer({**config, "enable.auto.commit": False})) as consumer:
        consumer.subscribe([name])
        assert len(consumer.consume(20, timeout=20)) == 20
        consumer.commit(offsets=[RawPartition(name, p, 10) for p in range(2)], asynchronous=False)
        other = start("other", [name])
        eventually(lambda: consumer.consume(0, 0.1) == [] and len(other.owned) == 1)
        (gone,) = other.owned
        with pytest.raises(KafkaException) as refused:
            consumer.commit(offsets=[RawPartition(*gone, 3)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError._ASSIGNMENT_LOST
        plain = consumer._data_plane.commit(offsets=[RawPartition(*gone, 3)], asynchronous=False)
        assert plain[0].error is None  # so the check above is what protects the next owner


def test_a_halted_partition_and_a_restarted_one_keep_the_group_in_place(
    topic: Any, config: dict[str, Any], start: Any, feed: Any, eventually: Eventually
) -> None:
    """Stops and restarts of owned partitions are none of the group's; a stopped one may still move."""
    name = topic(partitions=4)
    feed.write(name, 4, 40)
    with closing(Consumer(config)) as consumer:
        consumer.subscribe([name])
        assert len(consumer.consume(40, timeout=20)) == 40
        epoch = consumer.generation_id()
        consumer.incremental_unassign([RawPartition(name, n) for n in range(4)])
        consumer.incremental_assign([RawPartition(name, 1, 7)])
        assert [(m.partition(), m.offset()) for m in consumer.consume(3, timeout=20)] == [
            (1, n) for n in (7, 8, 9)
        ]
        assert consumer.generation_id() == epoch
        other = start("other", [name])
        eventually(lambda: consumer.consume(0, 0.1) == [] and len(other.owned) == 2)


def test_the_next_owner_waits_for_a_slow_revocation(
    topic: Any, start: Any, log: Any, eventually: Eventually
) -> None:
    """Also if another partition is restarted meanwhile, which librdkafka takes as the release."""
    name = topic(partitions=2)
    slow = start("slow", [name])
    eventually(lambda: len(slow.owned) == 2)
    slow.revocation_s = 1.0
    other = start("other", [name])
    eventually(lambda: slow.consumer._data_plane._revoking)
    (moving,) = slow.consumer._data_plane._revoking
    kept = RawPartition(name, 1 - moving.partition, 0)
    slow.consumer.incremental_unassign([kept])
    slow.consumer.incremental_assign([kept])
    eventually(lambda: other.owned == {moving})
    released = next(t.end for t in log.tenures if t.worker == "slow" and t.partition == moving)
    assert released < next(t.begin for t in log.tenures if t.worker == "other")


def test_a_consumer_that_closes_while_it_joins_leaves_no_member(
    topic: Any, config: dict[str, Any], group: str, admin: AdminClient, eventually: Eventually
) -> None:
    """Its partitions would have no reader until the session ends."""
    consumer = Consumer(config)
    consumer.subscribe([topic(partitions=2)])
    consumer.close()

    def is_empty() -> bool:
        described = admin.describe_consumer_groups([group])[group].result(30)
        return described.state is ConsumerGroupState.EMPTY and not described.members

    eventually(is_empty, 3)


def test_a_static_member_returns_to_its_partitions(
    topic: Any, long_session: None, start: Any, feed: Any, log: Any, eventually: Eventually
) -> None:
    """Within its session nobody else gets them."""
    del long_session
    name = topic(partitions=4)
    one, two = start("one", [name], **ONE), start("two", [name], **TWO)
    eventually(lambda: len(one.owned) == len(two.owned) == 2)
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) == 400)
    before, assigns = set(one.owned), two.assigns
    one.stop()
    feed.write(name, 4, 400)
    restarted = start("one", [name], **ONE)
    eventually(lambda: restarted.owned == before)
    eventually(lambda: len(log.records) == 800)
    assert two.assigns == assigns
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())


def test_a_second_consumer_with_the_same_id_ends(topic: Any, config: dict[str, Any], feed: Any) -> None:
    """The first one keeps its place, unlike in a classic group."""
    name = topic(partitions=1)
    feed.write(name, 1, 2)
    settings = {**config, "group.instance.id": "same"}
    with closing(Consumer(settings)) as first, closing(Consumer(settings)) as second:
        first.subscribe([name])
        assert len(first.consume(1, timeout=20)) == 1
        second.subscribe([name])
        with pytest.raises(GroupMembershipError, match=r"same group\.instance\.id"):
            second.consume(1, timeout=20)
        assert len(first.consume(1, timeout=20)) == 1


def test_a_static_member_is_not_drained(topic: Any, config: dict[str, Any]) -> None:
    """The broker keeps its partitions when it leaves: the error says what drains it instead."""
    with closing(Consumer({**config, "group.instance.id": "one"})) as consumer:
        consumer.subscribe([topic(partitions=1)])
        with pytest.raises(UnsupportedByProtocolError, match="a sidecar's plan"):
            consumer.drain()


def test_a_commit_to_a_silent_coordinator_holds_up_neither_consume_nor_close(
    group: str, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka's commit has no timeout: the partitions count as lost after that of a departure."""
    monkeypatch.setattr(broker_assigned_member, "LEAVE_TIMEOUT_S", 1.0)
    lost: list[Any] = []
    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        producer.produce("t", b"x")
        producer.flush()
        config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**config, "group.protocol": "consumer", "metadata.max.age.ms": 1000})
        consumer.subscribe(["t"], on_lost=lambda _, partitions: lost.extend(partitions))
        eventually(lambda: consumer.consume(1, timeout=0.1))
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            begun = monotonic()
            consumer.commit(offsets=[RawPartition("t", 0, 1)])
            assert consumer.consume(1, timeout=0.2) == []
            consumer.close()
            assert monotonic() - begun < 30  # about 2 s; without the limits as long as the silence
            assert [(p.topic, p.partition) for p in lost] == [("t", 0)]
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        for thread in list_threads():
            if thread.name == "trimtab-close":
                thread.join(30)
                assert not thread.is_alive()
