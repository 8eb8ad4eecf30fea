"""`share` where the client tells of errors among messages."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from trimtab.consumer_sdk.errors import BrokerUnreachable
from trimtab.consumer_sdk.queues import ShareQueue, share


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Any]]:
    """Return what the client hands out, call by call."""
    found: list[Sequence[Any]] = []
    client = Mock()
    client.poll.side_effect = found
    monkeypatch.setattr(share.topics, "connect", Mock())
    monkeypatch.setattr(share.topics, "require", Mock())
    monkeypatch.setattr(share, "require_share_groups", Mock())
    monkeypatch.setattr(share, "_configure", Mock(return_value=30.0))
    monkeypatch.setattr(share, "_consumer", Mock(return_value=client))
    return found


def event(code: int) -> Mock:
    """Return an error event."""
    return Mock(error=lambda: KafkaError(code))


def test_an_error_among_messages_is_raised_when_they_are_handed_out(
    polled: list[Sequence[Any]],
) -> None:
    """None before or behind it is lost; one that passes by itself has a name."""
    one, two = (Mock(wraps=Message(topic="t", partition=0, offset=n, value=b"x")) for n in (1, 2))
    for message in (one, two):
        message.delivery_count.return_value = 1
    refused = event(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    polled += [[one, event(KafkaError.NETWORK_EXCEPTION), two, refused], []]
    queue = ShareQueue("t", {"bootstrap.servers": "nowhere:1", "group.id": "g"})
    messages = queue.receive(9, 0)
    assert [message.offset for message in messages] == [1, 2]
    for message in messages:
        message.ack()
    with pytest.raises(BrokerUnreachable, match="nowhere:1"):
        queue.receive(9, 0)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        queue.receive(9, 0)
    assert queue.receive(9, 0) == []
