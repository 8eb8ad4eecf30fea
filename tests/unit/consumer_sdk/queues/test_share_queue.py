"""`share` without a broker: errors among messages, locks that end, refusals by their codes."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from unittest.mock import Mock, call

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient
from kafka import errors

from trimtab.common.clock import SystemClock
from trimtab.common.errors import ShareGroupsUnsupportedError
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
    """A client that hands out, call by call, what stands in `polled`."""

    polled: list[Sequence[Any]]
    mock: Mock


@pytest.fixture
def client_(monkeypatch: pytest.MonkeyPatch) -> Client:
    """Put a client in the place of librdkafka's."""
    found: list[Sequence[Any]] = []
    client = Mock()
    client.poll.side_effect = found
    client.commit_sync.return_value = {}
    monkeypatch.setattr(share_queue.topics, "create_admin_client", Mock())
    monkeypatch.setattr(share_queue.topics, "require_topic", Mock())
    monkeypatch.setattr(share_queue, "require_share_groups", Mock())
    monkeypatch.setattr(share_queue, "require_group_access", Mock())
    monkeypatch.setattr(share_queue, "configure_share_group", Mock(return_value=30.0))
    monkeypatch.setattr(share_queue, "_create_share_consumer", Mock(return_value=client))
    return Client(found, client)


@pytest.fixture
def polled(client_: Client) -> list[Sequence[Any]]:
    """Return what the client hands out, call by call."""
    return client_.polled


def raw(offset: int) -> Mock:
    """Return a message."""
    message = Mock(wraps=Message(topic="t", partition=0, offset=offset, value=b"x"))
    message.delivery_count.return_value = 1
    return message


def event(code: int) -> Mock:
    """Return an error event."""
    return Mock(error=lambda: KafkaError(code))


def test_an_error_among_messages_is_raised_when_they_are_handed_out(polled: list[Sequence[Any]]) -> None:
    """None before or behind it is lost; one that passes by itself has a name."""
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


class Still:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def time(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def test_a_message_that_nobody_settles_holds_nothing_up_after_its_lock(
    client_: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """It is given back, with what was not handed out; what is said of it later goes nowhere."""
    clock = Still()
    client_.polled.extend([[raw(1), raw(2)], [raw(1), raw(3)]])
    queue = ShareQueue("t", CONFIG, clock=clock)
    (forgotten,) = queue.receive(1, 0)
    clock.at = 30.0
    assert [message.offset for message in queue.receive(1, 0)] == [2]  # the lock still lasts
    clock.at = 30.1
    assert [message.offset for message in queue.receive(9, 0)] == [1, 3]
    told = client_.mock.acknowledge.call_args_list
    assert sorted((args[0].offset(), args[1]) for args, _ in told) == [(1, 2), (2, 2)]
    assert caplog.text.count("not settled before their lock expired") == 1
    assert forgotten.ack() is SettlementResult.LATE
    queue.receive(0, 0)
    assert len(told) == 2  # not the new delivery of the same offset


def test_the_answer_to_what_was_said_is_waited_for(client_: Client) -> None:
    """Of two commits under way a broker refuses the second; so there is one, and then the next."""
    client_.polled.append([raw(1), raw(2)])
    queue = ShareQueue("t", CONFIG)
    for message in queue.receive(2, 0):
        message.ack()
        queue.receive(0, 0)
    assert client_.mock.commit_sync.call_count == 2
    assert not client_.mock.commit_async.called


def test_a_client_that_cannot_subscribe_is_closed(client_: Client) -> None:
    """What was opened does not outlive the error."""
    client_.mock.subscribe.side_effect = KafkaException(KafkaError(KafkaError._INVALID_ARG))
    with pytest.raises(KafkaException):
        ShareQueue("t", CONFIG).receive(1, 0)
    assert client_.mock.mock_calls[-1] == call.close()


def broker(code: int | None = None, **found: str) -> AdminClient:
    """Return a client whose broker refuses with a code, or has these settings of the group."""
    asked = Mock()
    values = {LOCK_DURATION_CONFIG: "15000", **found}
    asked.result.return_value = {name: Mock(value=value) for name, value in values.items()}
    if code is not None:
        asked.result.side_effect = KafkaException(KafkaError(code))
    return cast("AdminClient", Mock(describe_configs=Mock(return_value={"group": asked})))


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
def test_refusals_are_told_apart(code: int, error: type[Exception], match: str) -> None:
    """Only what the broker does not know is said to be missing."""
    with pytest.raises(error, match=match):
        configure_share_group(broker(code), parse_queue_settings("t", CONFIG), CONFIG, 1, SystemClock())


def test_dead_letters_that_no_broker_writes_are_refused_if_asked_for() -> None:
    """Who does not ask for them gets the queue without; the version stands in the message."""
    assert (
        configure_share_group(broker(), parse_queue_settings("t", CONFIG), CONFIG, 1, SystemClock()) == 15.0
    )
    given = {**CONFIG, "trimtab.queue.dead.letter": "dlq.t"}
    with pytest.raises(UnsupportedQueueOperationError, match=r"share\.version=2.*it is 1.*kmq"):
        configure_share_group(broker(), parse_queue_settings("t", given), given, 1, SystemClock())


def test_a_dead_letter_topic_of_ours_gets_the_brokers_prefix() -> None:
    """One that the user names is theirs to change."""
    assert prefix_dead_letter_topic(given=False, name="t.g.dead", prefix="dlq.") == "dlq.t.g.dead"
    assert prefix_dead_letter_topic(given=True, name="dlq.mine", prefix="dlq.") == "dlq.mine"
    with pytest.raises(QueueTopicMismatchError, match=r"'dlq\.'.*'dlq\.mine'"):
        prefix_dead_letter_topic(given=True, name="mine", prefix="dlq.")


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (errors.KafkaTimeoutError(), BrokerUnreachableError),
        (errors.ClusterAuthorizationFailedError(), MissingAclError),
        (errors.UnsupportedVersionError(), ShareGroupsUnsupportedError),
        (errors.InvalidRequestError(), errors.InvalidRequestError),
    ],
)
def test_brokers_that_do_not_tell_their_features(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[Exception]
) -> None:
    """Away, not allowed, too old: each has its own name."""
    monkeypatch.setattr(broker_features, "_ADMIN_CLIENT", Mock(side_effect=raised))
    with pytest.raises(error):
        broker_features.require_share_groups(CONFIG)
