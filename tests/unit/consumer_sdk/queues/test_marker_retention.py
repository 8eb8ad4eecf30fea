"""Settled markers are deleted in the background, whatever the broker answers."""

from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from support.ticking import Ticking
from trimtab.consumer_sdk.queues.kmq.marker_retention import MARKER_DELETION_INTERVAL_S, MarkerRetention


class Client:
    """Admin client whose answers the test completes."""

    def __init__(self) -> None:
        self.requested: list[tuple[int, int]] = []
        self.answers: dict[int, Future[Any]] = {}

    def delete_records(
        self, offsets: list[RawPartition], request_timeout: float
    ) -> dict[RawPartition, Future[Any]]:
        assert request_timeout > 0
        self.requested += [(p.partition, p.offset) for p in offsets]
        self.answers |= {p.partition: Future[Any]() for p in offsets}
        return {p: self.answers[p.partition] for p in offsets}


@pytest.fixture
def client() -> Client:
    """Return a client without answers."""
    return Client()


@pytest.fixture
def clock() -> Ticking:
    """Return a clock that only the test advances."""
    return Ticking()


def open_retention(client: Any, clock: Ticking) -> MarkerRetention:
    return MarkerRetention(client, "t.g.markers", clock)


def test_a_broker_that_never_answers_is_not_waited_for(client: Client, clock: Ticking) -> None:
    """`delete_markers` returns at once and skips partitions with a pending request."""
    retention = open_retention(client, clock)
    retention.delete_markers({0: 5})
    clock.now += MARKER_DELETION_INTERVAL_S
    retention.delete_markers({0: 6, 1: 7})
    assert client.requested == [(0, 5), (1, 7)]


def test_an_answer_counts_on_the_next_call(client: Client, clock: Ticking) -> None:
    """A deletion is not requested twice; a refused one is, after the interval."""
    retention = open_retention(client, clock)
    retention.delete_markers({0: 5, 1: 7})
    client.answers[0].set_result(Mock(low_watermark=5))
    client.answers[1].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    retention.delete_markers({0: 5, 1: 7})
    assert client.requested == [(0, 5), (1, 7)]
    clock.now += MARKER_DELETION_INTERVAL_S
    retention.delete_markers({0: 5, 1: 7})
    assert client.requested == [(0, 5), (1, 7), (1, 7)]


def test_a_missing_right_is_logged_once_and_ends_deletion(
    client: Client, clock: Ticking, caplog: pytest.LogCaptureFixture
) -> None:
    """For two refused partitions one line names the right, and no request follows."""
    retention = open_retention(client, clock)
    retention.delete_markers({0: 5, 1: 7})
    for answer in client.answers.values():
        answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    for _ in range(2):
        clock.now += MARKER_DELETION_INTERVAL_S
        retention.delete_markers({0: 9, 1: 9})
    assert client.requested == [(0, 5), (1, 7)]
    assert caplog.text.count("DELETE on the topic") == 1
