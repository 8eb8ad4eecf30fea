"""Trimming old markers: asked in the background, whatever the broker does."""

from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition
from ticking import Ticking

from trimtab.consumer_sdk.queues.kmq.marker_retention import (
    MARKER_DELETION_INTERVAL_S,
    MarkerRetention,
)


class Client:
    """An admin client whose answers come when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.answers: dict[int, Future[Any]] = {}

    def delete_records(
        self, offsets: list[RawPartition], request_timeout: float
    ) -> dict[RawPartition, Future[Any]]:
        assert request_timeout > 0
        self.asked += [(p.partition, p.offset) for p in offsets]
        self.answers |= {p.partition: Future[Any]() for p in offsets}
        return {p: self.answers[p.partition] for p in offsets}


@pytest.fixture
def client() -> Client:
    """A broker that does not answer by itself."""
    return Client()


@pytest.fixture
def clock() -> Ticking:
    """Time that stands still until a test moves it."""
    return Ticking()


def trimmer(client: Any, clock: Ticking) -> MarkerRetention:
    return MarkerRetention(client, "t.g.markers", clock)


def test_a_broker_that_never_answers_is_not_waited_for(client: Client, clock: Ticking) -> None:
    """`delete_markers` returns at once, and asks again only for partitions that nothing is open for."""
    trims = trimmer(client, clock)
    trims.delete_markers({0: 5})
    clock.now += MARKER_DELETION_INTERVAL_S
    trims.delete_markers({0: 6, 1: 7})
    assert client.asked == [(0, 5), (1, 7)]


def test_an_answer_counts_the_next_time(client: Client, clock: Ticking) -> None:
    """What is deleted is not asked for again; what was refused is, as soon as it is time."""
    trims = trimmer(client, clock)
    trims.delete_markers({0: 5, 1: 7})
    client.answers[0].set_result(Mock(low_watermark=5))
    client.answers[1].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    trims.delete_markers({0: 5, 1: 7})
    assert client.asked == [(0, 5), (1, 7)]
    clock.now += MARKER_DELETION_INTERVAL_S
    trims.delete_markers({0: 5, 1: 7})
    assert client.asked == [(0, 5), (1, 7), (1, 7)]


def test_a_missing_right_is_told_once_and_ends_it(
    client: Client, clock: Ticking, caplog: pytest.LogCaptureFixture
) -> None:
    """Two partitions are refused; one line says what to grant, and nothing is asked again."""
    trims = trimmer(client, clock)
    trims.delete_markers({0: 5, 1: 7})
    for answer in client.answers.values():
        answer.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    for _ in range(2):
        clock.now += MARKER_DELETION_INTERVAL_S
        trims.delete_markers({0: 9, 1: 9})
    assert client.asked == [(0, 5), (1, 7)]
    assert caplog.text.count("DELETE on the topic") == 1
