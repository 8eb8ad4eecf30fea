"""The consumer on a real broker: join, leave, rebalance, drain, and every record read once."""

from collections.abc import Callable
from contextlib import closing
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.consumer_sdk import Consumer, GroupMembershipError
from trimtab.consumer_sdk.client.membership_events import PartitionsRevoked
from trimtab.consumer_sdk.errors import BrokerUnreachableError
from trimtab.consumer_sdk.membership.classic import coordinator, group_commits
from trimtab.consumer_sdk.membership.lease import Lease

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]
LEAVE_EPOCH = -1
# the broker resolves patterns itself, at intervals of its own
slow_on_new = pytest.mark.parametrize(
    "config", ["classic", pytest.param("consumer", marks=pytest.mark.slow)], indirect=True
)
classic_only = pytest.mark.parametrize("config", ["classic"], indirect=True)


@pytest.fixture(params=["classic", "consumer"])
def config(config: dict[str, Any], use_protocol: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of both group protocols."""
    chosen: dict[str, Any] = use_protocol(config, request.param)
    return chosen


def read_all(log: Any, feed: Any) -> bool:
    return all(len(set(log.offsets().get(p, ()))) == n for p, n in feed.written.items())


def exactly_once(log: Any, feed: Any) -> None:
    for partition, count in feed.written.items():
        assert sorted(log.offsets()[partition]) == list(range(count)), partition


def test_members_come_and_go_and_every_record_is_read_once(
    topic: Any, start: Any, feed: Any, log: Any, eventually: Eventually
) -> None:
    """Joins and departures move partitions without lost or duplicated records."""
    name = topic(partitions=6)
    first = start("first", [name])
    eventually(lambda: len(first.owned) == 6)
    feed.write(name, 6, 600)
    second = start("second", [name])
    eventually(lambda: len(first.owned) == len(second.owned) == 3)
    feed.write(name, 6, 600)
    third = start("third", [name])
    eventually(lambda: {len(w.owned) for w in (first, second, third)} == {2})
    feed.write(name, 6, 600)
    first.stop()
    eventually(lambda: len(second.owned) == len(third.owned) == 3)
    feed.write(name, 6, 600)
    eventually(lambda: read_all(log, feed))
    exactly_once(log, feed)


@classic_only
def test_a_forced_rebalance_moves_nothing(
    topic: Any, start: Any, feed: Any, log: Any, eventually: Eventually
) -> None:
    """A rebalance without a cause moves no partition."""
    name = topic(partitions=7)
    workers = [start(n, [name]) for n in ("a", "b", "c")]
    eventually(lambda: sum(len(w.owned) for w in workers) == 7 and all(w.owned for w in workers))
    before = [set(w.owned) for w in workers]
    tenures = len(log.tenures)
    generation = workers[0].consumer.generation_id()
    for worker in workers:
        worker.consumer._member.request_rejoin()
        eventually(lambda g=generation: workers[0].consumer.generation_id() > g)
        generation = workers[0].consumer.generation_id()
    feed.write(name, 7, 70)
    eventually(lambda: read_all(log, feed))
    assert [w.owned for w in workers] == before
    assert len(log.tenures) == tenures


def test_a_draining_member_ends_with_nothing(
    topic: Any, start: Any, feed: Any, log: Any, eventually: Eventually
) -> None:
    """drain() moves all partitions to other members in order; the consumer stays open, idle."""
    name = topic(partitions=4)
    one, two = start("one", [name]), start("two", [name])
    eventually(lambda: len(one.owned) == len(two.owned) == 2)
    feed.write(name, 4, 400)
    one.consumer.drain()
    eventually(lambda: len(two.owned) == 4 and not one.owned)
    feed.write(name, 4, 400)
    eventually(lambda: read_all(log, feed))
    exactly_once(log, feed)


def test_a_commit_from_an_old_generation_is_refused(topic: Any, config: dict[str, Any], feed: Any) -> None:
    """A member that the group removed cannot commit."""
    name = topic(partitions=1)
    feed.write(name, 1, 10)
    consumer = Consumer({**config, "enable.auto.commit": False})
    try:
        consumer.subscribe([name])
        assert len(consumer.consume(10, timeout=20)) == 10
        remove_member(config, consumer)
        with pytest.raises(KafkaException) as refused:
            consumer.commit(asynchronous=False)
        assert refused.value.args[0].code() in {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID}
    finally:
        consumer.close()
    other = Consumer(config)
    committed = other.committed([_raw(name, 0)])
    other.close()
    assert committed[0].offset < 0


@pytest.mark.parametrize("where", ["before the release", "in on_revoke"])
def test_the_release_keeps_an_asynchronous_commit(
    topic: Any, config: dict[str, Any], feed: Any, where: str
) -> None:
    """The last commit follows one that was not answered yet; an older offset would rewind the next owner."""
    name = topic(partitions=1)
    feed.write(name, 1, 10)

    def commit_all(consumer: Consumer, _revoked: Any = None) -> None:
        consumer.commit(offsets=[_raw(name, 0, 10)])

    with closing(Consumer({**config, "enable.auto.commit": False})) as consumer:
        consumer.subscribe([name], on_revoke=commit_all if where == "in on_revoke" else None)
        assert len(consumer.consume(10, timeout=20)) == 10
        consumer.commit(offsets=[_raw(name, 0, 4)], asynchronous=False)
        if where == "before the release":
            commit_all(consumer)
    with closing(Consumer(config)) as other:
        assert other.committed([_raw(name, 0)])[0].offset == 10


@classic_only
def test_an_asynchronous_commit_that_is_late_does_not_rewind_the_next_owner(
    topic: Any, config: dict[str, Any], feed: Any, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits, as for the coordinator, until the partition has moved: the next generation would send it."""
    name, goes_on = topic(partitions=2), Event()
    feed.write(name, 2, 20)
    wait = group_commits._wait_for_confirmation

    async def wait_first(consumer: Any, _partitions: Any) -> None:
        monkeypatch.setattr(group_commits, "_wait_for_confirmation", wait)
        while not goes_on.is_set():
            await coordinator.sleep_on_event_loop(consumer, 0.01)

    manual = {**config, "enable.auto.commit": False}
    with closing(Consumer(manual)) as first, closing(Consumer({**manual, "client.id": "second"})) as second:
        first.subscribe([name])
        read = 0
        while read < 20:
            read += len(first.consume(20, timeout=20))
        monkeypatch.setattr(group_commits, "_wait_for_confirmation", wait_first)
        first.commit(offsets=[_raw(name, 0, 3), _raw(name, 1, 3)])
        second.subscribe([name])
        eventually(lambda: first.consume(1, 0.1) or second.consume(1, 0.1) or second.assignment())
        (moved,) = second.assignment()
        second.commit(offsets=[_raw(name, moved.partition, 9)], asynchronous=False)
        goes_on.set()
        eventually(lambda: first.consume(1, 0.1) or first._member.client._coordinator.open_commits == 0)
        assert second.committed([moved])[0].offset == 9


@classic_only
def test_a_rejoin_before_the_next_poll_does_not_restore_lost_partitions(
    topic: Any, config: dict[str, Any], feed: Any, eventually: Eventually
) -> None:
    """A commit from before the loss is refused, although the member has joined again."""
    name = topic(partitions=1)
    feed.write(name, 1, 10)
    consumer = Consumer({**config, "enable.auto.commit": False})
    try:
        consumer.subscribe([name])
        assert len(consumer.consume(10, timeout=20)) == 10
        generation = consumer.generation_id()
        remove_member(config, consumer)
        client = consumer._member.client
        eventually(lambda: consumer.generation_id() > generation and not coordinator.is_joining(client))
        with pytest.raises(KafkaException) as refused:
            consumer.commit(offsets=[_raw(name, 0, 3)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.ILLEGAL_GENERATION
        assert consumer.committed([_raw(name, 0)])[0].offset < 0
        assert [m.offset() for m in consumer.consume(1, timeout=20)] == [0]
        consumer.commit(asynchronous=False)
        assert consumer.committed([_raw(name, 0)])[0].offset == 1
    finally:
        consumer.close()


def test_a_failed_callback_does_not_keep_the_member_in_the_group(
    topic: Any, config: dict[str, Any], feed: Any
) -> None:
    """The application gets the callback's error, and close() still leaves the group."""
    name = topic(partitions=1)
    feed.write(name, 1, 1)

    def fail(*_: Any) -> None:
        raise RuntimeError("a mistake in the application")

    consumer = Consumer({**config, "session.timeout.ms": 30_000})  # longer than its heir waits
    consumer.subscribe([name], on_assign=fail, on_revoke=fail)
    with pytest.raises(RuntimeError, match="mistake"):
        consumer.consume(1, timeout=20)
    assert len(consumer.consume(1, timeout=20)) == 1
    with pytest.raises(RuntimeError, match="mistake"):
        consumer.close()
    heir = Consumer(config)
    heir.subscribe([name])
    feed.write(name, 1, 1)
    assert len(heir.consume(1, timeout=20)) == 1
    heir.close()


def test_a_removed_member_loses_its_partitions_and_rejoins(
    topic: Any, start: Any, config: dict[str, Any], eventually: Eventually
) -> None:
    """on_lost runs, and the next join assigns the partitions again."""
    name = topic(partitions=2)
    worker = start("only", [name])
    eventually(lambda: len(worker.owned) == 2)
    remove_member(config, worker.consumer)
    eventually(lambda: worker.assigns == 2 and len(worker.owned) == 2)


@slow_on_new
def test_a_pattern_finds_new_topics_and_new_partitions(
    start: Any, bootstrap: str, group: str, eventually: Eventually
) -> None:
    """Later topics and partitions are assigned; deleted ones are released."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    worker = start("only", [f"^{group}-.*"])
    for name, partitions in ((f"{group}-x", 1), (f"{group}-y", 2)):
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        expected = {TopicPartition(name, n) for n in range(partitions)}
        eventually(lambda e=expected: e <= worker.owned)
    admin.create_partitions([NewPartitions(f"{group}-x", 3)])[f"{group}-x"].result()
    eventually(lambda: TopicPartition(f"{group}-x", 2) in worker.owned)
    admin.delete_topics([f"{group}-y"])[f"{group}-y"].result()
    eventually(lambda: {p.topic for p in tuple(worker.owned)} == {f"{group}-x"})


def test_a_missing_topic_is_read_once_it_exists(
    start: Any, bootstrap: str, group: str, feed: Any, log: Any, eventually: Eventually
) -> None:
    """A missing topic is logged, and read once it has been created."""
    worker = start("only", [f"{group}-late"])
    eventually(lambda: worker.consumer.generation_id() > 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"{group}-late", 2, 1)])[f"{group}-late"].result()
    feed.write(f"{group}-late", 2, 20)
    eventually(lambda: read_all(log, feed))


def test_an_application_that_does_not_poll_loses_its_partitions(
    topic: Any, config: dict[str, Any], start: Any, feed: Any, log: Any, eventually: Eventually
) -> None:
    """After max.poll.interval.ms the other members get its partitions."""
    name = topic(partitions=2)
    late = Consumer({**config, "max.poll.interval.ms": 6000, "trimtab.instance": "late"})
    lost: list[Any] = []
    try:
        late.subscribe([name], on_lost=lambda _, partitions: lost.extend(partitions))
        eventually(lambda: late.consume(0, 0.1) == [] and len(late.assignment()) == 2)
        feed.write(name, 2, 20)
        heir = start("heir", [name])
        eventually(lambda: read_all(log, feed) and len(heir.owned) == 2, timeout=40)
        late.consume(0, timeout=0.5)
        assert len(lost) > 0
    finally:
        late.close()


@classic_only
def test_a_dead_control_plane_stops_the_data_plane(
    topic: Any, config: dict[str, Any], feed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the member's thread dies, the partitions are lost and the application gets the error."""
    name = topic(partitions=1)
    lost: list[Any] = []
    consumer = Consumer(config)
    try:
        consumer.subscribe([name], on_lost=lambda _, partitions: lost.extend(partitions))
        feed.write(name, 1, 1)
        assert len(consumer.consume(1, timeout=20)) == 1

        def die(*_: Any) -> None:
            raise RuntimeError("struck by lightning")

        monkeypatch.setattr(coordinator, "poll_coordinator", die)
        with pytest.raises(GroupMembershipError, match="lightning"):
            consumer.consume(1, timeout=20)
        assert [p.topic for p in lost] == [name]
        assert consumer.assignment() == []
    finally:
        monkeypatch.undo()
        consumer.close()


@classic_only
def test_a_silent_coordinator_stops_records(
    topic: Any, config: dict[str, Any], feed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answered heartbeat no record is returned; with one, reading continues."""
    name = topic(partitions=1)
    consumer = Consumer(config)
    try:
        consumer.subscribe([name])
        feed.write(name, 1, 1)
        assert len(consumer.consume(1, timeout=20)) == 1
        contact = coordinator.read_heartbeat_times
        past = contact(consumer._member.client)
        aged = coordinator.HeartbeatTimes(past.sent_at - 10, past.received_at - 10)
        monkeypatch.setattr(coordinator, "read_heartbeat_times", lambda _: aged)
        consumer._member._lease = Lease(6.0, aged.sent_at)
        consumer._member._assignor.joined_at = aged.sent_at
        feed.write(name, 1, 1)
        assert consumer.consume(1, timeout=1) == []
        monkeypatch.setattr(coordinator, "read_heartbeat_times", contact)
        assert [m.offset() for m in consumer.consume(1, timeout=20)] == [1]
    finally:
        monkeypatch.undo()
        consumer.close()


def test_records_are_returned_before_their_partition_is_revoked(
    topic: Any, config: dict[str, Any], feed: Any
) -> None:
    """A revocation during consume() waits until the collected records are returned."""
    name = topic(partitions=1)
    feed.write(name, 1, 1)
    gone: list[Any] = []
    consumer = Consumer(config)
    try:
        consumer.subscribe([name], on_revoke=lambda _, partitions: gone.extend(partitions))
        revoked = PartitionsRevoked(frozenset({TopicPartition(name, 0)}))
        fetch = consumer._fetch_messages

        def fetch_and_revoke(*limits: Any) -> Any:
            messages = fetch(*limits)
            if messages:
                consumer._member.inbox.append(revoked)
            return messages

        consumer._fetch_messages = fetch_and_revoke
        assert len(consumer.consume(5, timeout=20)) == 1
        assert gone == []
        consumer.consume(0, timeout=0.1)
        assert [p.topic for p in gone] == [name]
        assert revoked.released.is_set()
    finally:
        consumer.close()


@pytest.mark.parametrize("metadata", ['{"released": 1' + "0" * 400 + "}", "[" * 4000, 500 * "ü\U0001f4a5"])
def test_foreign_commit_metadata_stops_no_owner(
    topic: Any, config: dict[str, Any], feed: Any, metadata: str
) -> None:
    """Any client may commit it, and it stays until the next commit."""
    name = topic(partitions=1)
    feed.write(name, 1, 3)
    with closing(DataConsumer({k: config[k] for k in ("bootstrap.servers", "group.id")})) as foreign:
        foreign.commit(offsets=[RawPartition(name, 0, 1, metadata)], asynchronous=False)
    with closing(Consumer(config)) as owner:
        owner.subscribe([name])
        assert [m.offset() for m in owner.consume(2, timeout=20)] == [1, 2]


def test_a_subscription_replaces_the_assignment_before_it(
    topic: Any, config: dict[str, Any], feed: Any
) -> None:
    """All partitions are read from the group's offsets, those read before, too."""
    name = topic(partitions=3)
    feed.write(name, 3, 9)
    with closing(Consumer({**config, "enable.auto.commit": False})) as reader:
        reader.assign([RawPartition(name, 0, 1)])
        assert len(reader.consume(2, timeout=20)) == 2
        reader.subscribe([name])
        read = [(m.partition(), m.offset()) for m in reader.consume(9, timeout=20)]
    assert sorted(read) == [(p, n) for p in range(3) for n in range(3)]


def test_an_unreachable_broker_is_reported() -> None:
    """The error contains the broker's address."""
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0})
    with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:9"):
        consumer.subscribe(["t"])
    consumer.close()


def remove_member(config: dict[str, Any], consumer: Consumer) -> None:
    """Make the group's coordinator remove a member, as after its session."""
    name = str(consumer.memberid())
    group, server = config["group.id"], {"bootstrap.servers": config["bootstrap.servers"]}
    with closing(Brokers(server, SystemClock(), client_id="test", timeout=30.0)) as brokers:
        if config.get("group.protocol") == "consumer":  # the coordinator accepts a heartbeat of anyone
            fields = {"group_id": group, "member_id": name, "member_epoch": LEAVE_EPOCH}
            brokers.ask_coordinator(group, apis.CONSUMER_GROUP_HEARTBEAT, fields)
        else:
            removed = [{"member_id": name, "group_instance_id": None}]
            brokers.ask_coordinator(group, apis.LEAVE_GROUP, {"group_id": group, "members": removed})


def _raw(name: str, partition: int, offset: int = -1001) -> Any:
    return RawPartition(name, partition, offset)
