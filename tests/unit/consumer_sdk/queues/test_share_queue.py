"""`share` without a broker: errors among messages, expired locks, refusals by error code."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from unittest.mock import Mock, call

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from support.ticking import Ticking
from trimtab.common.clock import SystemClock
from trimtab.common.errors import ShareGroupsUnsupportedError
from trimtab.common.kafka_protocol import errors
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.consumer_sdk.errors import (
    BrokerUnreachableError,
    MissingAclError,
    QueueTopicMismatchError,
    UnsupportedQueueOperationError,
)
from trimtab.consumer_sdk.queues import SettlementResult, ShareQueue
from trimtab.consumer_sdk.queues.settings import parse_queue_settings
from trimtab.consumer_sdk.queues.share import broker_features, share_queue
from trimtab.consumer_sdk.queues.share.group_settings import (
    LOCK_DURATION_CONFIG,
    configure_share_group,
    prefix_dead_letter_topic,
)

CONFIG = {"bootstrap.servers": "nowhere:1", "group.id": "g"}


class Client(NamedTuple):
    """Fake of librdkafka's client; each poll returns the next entry of `polled`."""

    polled: list[Sequence[Any]]
    mock: Mock


@pytest.fixture
def client_(monkeypatch: pytest.MonkeyPatch) -> Client:
    """Replace librdkafka's client."""
    polled: list[Sequence[Any]] = []
    client = Mock()
    client.poll.side_effect = polled
    client.commit_sync.return_value = {}
    monkeypatch.setattr(share_queue.topics, "create_admin_client", Mock())
    monkeypatch.setattr(share_queue.topics, "require_topic", Mock())
    monkeypatch.setattr(share_queue, "require_share_groups", Mock())
    monkeypatch.setattr(share_queue, "require_group_access", Mock())
    monkeypatch.setattr(share_queue, "configure_share_group", Mock(return_value=30.0))
    monkeypatch.setattr(share_queue, "_create_share_consumer", Mock(return_value=client))
    return Client(polled, client)


@pytest.fixture
def polled(client_: Client) -> list[Sequence[Any]]:
    """Return the results of the client's polls."""
    return client_.polled


def raw(offset: int) -> Mock:
    """Return a message."""
    message = Mock(wraps=Message(topic="t", partition=0, offset=offset, value=b"x"))
    message.delivery_count.return_value = 1
    return message


def event(code: int) -> Mock:
    """Return an error event."""
    return Mock(error=lambda: KafkaError(code))


def test_an_error_among_messages_is_raised_after_their_delivery(polled: list[Sequence[Any]]) -> None:
    """Messages before and after it are delivered; a transient error is a BrokerUnreachableError."""
    one, two = raw(1), raw(2)
    refused = event(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    polled += [[one, event(KafkaError.NETWORK_EXCEPTION), two, refused], []]
    queue = ShareQueue("t", CONFIG)
    messages = queue.receive(9, 0)
    assert [message.offset for message in messages] == [1, 2]
    for message in messages:
        message.ack()
    with pytest.raises(BrokerUnreachableError, match="nowhere:1"):
        queue.receive(9, 0)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        queue.receive(9, 0)
    assert queue.receive(9, 0) == []


class ManualClock:
    """Clock that the test advances."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def time(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def test_an_expired_lock_releases_the_batch(client_: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Unsettled and undelivered messages are released; a later settlement has no effect."""
    clock = ManualClock()
    client_.polled.extend([[raw(1), raw(2)], [raw(1), raw(3)]])
    queue = ShareQueue("t", CONFIG, clock=clock)
    (forgotten,) = queue.receive(1, 0)
    clock.at = 30.0
    assert [message.offset for message in queue.receive(1, 0)] == [2]  # the lock still lasts
    clock.at = 30.1
    assert [message.offset for message in queue.receive(9, 0)] == [1, 3]
    acknowledged = client_.mock.acknowledge.call_args_list
    assert sorted((args[0].offset(), args[1]) for args, _ in acknowledged) == [(1, 2), (2, 2)]
    assert caplog.text.count("not settled before their lock expired") == 1
    assert forgotten.ack() is SettlementResult.LATE
    queue.receive(0, 0)
    assert len(acknowledged) == 2  # not the new delivery of the same offset


def test_a_wait_beyond_the_lock_costs_a_message_no_time(client_: Client) -> None:
    """A lock begins when the message arrives, not when `receive` began to wait for it."""
    clock = ManualClock()

    def poll(timeout: float) -> list[Mock]:
        clock.sleep(max(timeout, 0.01))
        return [raw(1)] if clock.at > 45 else []

    client_.mock.poll.side_effect = poll
    queue = ShareQueue("t", CONFIG, clock=clock)
    (message,) = queue.receive(1, 60)
    assert 29 < (message.deadline or 0) - clock.at <= 30
    queue.receive(0, 0)
    assert not client_.mock.acknowledge.called
    assert message.ack() is SettlementResult.DONE


def test_a_lock_may_begin_when_an_empty_poll_ends(client_: Client) -> None:
    """librdkafka locks messages between polls, unless the last poll had a batch."""
    clock = ManualClock()
    client_.polled.extend([[], [raw(1)], [raw(2)]])
    queue = ShareQueue("t", CONFIG, clock=clock)
    assert queue.receive(1, 0) == []
    clock.at = 20.0
    (message,) = queue.receive(1, 0)
    assert message.deadline == 30.0
    message.ack()
    clock.at = 25.0
    (message,) = queue.receive(1, 0)
    assert message.deadline == 55.0


def test_only_one_commit_is_in_flight(client_: Client) -> None:
    """Of two concurrent commits the broker refuses the second, so each waits for its answer."""
    client_.polled.append([raw(1), raw(2)])
    queue = ShareQueue("t", CONFIG)
    for message in queue.receive(2, 0):
        message.ack()
        queue.receive(0, 0)
    assert client_.mock.commit_sync.call_count == 2
    assert not client_.mock.commit_async.called


def test_a_client_that_cannot_subscribe_is_closed(client_: Client) -> None:
    """No client is left open after the error."""
    client_.mock.subscribe.side_effect = KafkaException(KafkaError(KafkaError._INVALID_ARG))
    with pytest.raises(KafkaException):
        ShareQueue("t", CONFIG).receive(1, 0)
    assert client_.mock.mock_calls[-1] == call.close()


def broker(code: int | None = None, **configs: str) -> AdminClient:
    """Return a client whose broker refuses with a code, or has these settings of the group."""
    answer = Mock()
    values = {LOCK_DURATION_CONFIG: "15000", **configs}
    answer.result.return_value = {name: Mock(value=value) for name, value in values.items()}
    if code is not None:
        answer.result.side_effect = KafkaException(KafkaError(code))
    return cast("AdminClient", Mock(describe_configs=Mock(return_value={"group": answer})))


@pytest.mark.parametrize(
    ("code", "error", "match"),
    [
        (KafkaError._TIMED_OUT, BrokerUnreachableError, "nowhere:1"),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, BrokerUnreachableError, "nowhere:1"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, MissingAclError, "grant DescribeConfigs on group 'g'"),
        (KafkaError.INVALID_REQUEST, ShareGroupsUnsupportedError, "does not accept settings"),
        (KafkaError.UNSUPPORTED_VERSION, ShareGroupsUnsupportedError, "does not accept settings"),
        (KafkaError.UNKNOWN, KafkaException, "UNKNOWN"),
    ],
)
def test_each_refusal_has_its_error(code: int, error: type[Exception], match: str) -> None:
    """Only a feature that the broker lacks is reported as unsupported."""
    with pytest.raises(error, match=match):
        configure_share_group(broker(code), parse_queue_settings("t", CONFIG), CONFIG, 1, SystemClock())


def test_a_dead_letter_topic_is_refused_if_the_broker_writes_none() -> None:
    """Without the setting the queue opens; the error names the required and the present version."""
    assert (
        configure_share_group(broker(), parse_queue_settings("t", CONFIG), CONFIG, 1, SystemClock()) == 15.0
    )
    given = {**CONFIG, "trimtab.queue.dead.letter": "dlq.t"}
    with pytest.raises(UnsupportedQueueOperationError, match=r"share\.version=2.*it is 1.*kmq"):
        configure_share_group(broker(), parse_queue_settings("t", given), given, 1, SystemClock())


def test_a_default_dead_letter_topic_gets_the_brokers_prefix() -> None:
    """A name that the user gives is checked, not changed."""
    assert prefix_dead_letter_topic(given=False, name="t.g.dead", prefix="dlq.") == "dlq.t.g.dead"
    assert prefix_dead_letter_topic(given=True, name="dlq.mine", prefix="dlq.") == "dlq.mine"
    with pytest.raises(QueueTopicMismatchError, match=r"'dlq\.'.*'dlq\.mine'"):
        prefix_dead_letter_topic(given=True, name="mine", prefix="dlq.")


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (errors.LoginFailedError("refused"), errors.LoginFailedError),
        (errors.RequestTimeoutError("late"), BrokerUnreachableError),
        (errors.ClusterDeniedError(), MissingAclError),
        (errors.UnsupportedApiError("too old"), ShareGroupsUnsupportedError),
        (errors.make_error(42), errors.ErrorResponseError),
    ],
)
def test_a_failed_feature_request_has_its_error(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[Exception]
) -> None:
    """Unreachable, denied, too old: each is an error class."""
    monkeypatch.setattr(Brokers, "fetch_features", Mock(side_effect=raised))
    with pytest.raises(error):
        broker_features.require_share_groups(CONFIG, Ticking())
