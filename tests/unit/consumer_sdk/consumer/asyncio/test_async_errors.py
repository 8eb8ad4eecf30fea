"""Errors of Trimtab and confluent-kafka become those that an application of aiokafka expects."""

import sys
from collections.abc import Iterator

import aiokafka.errors
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk import BrokerUnreachableError, ConsumerClosedError, GroupMembershipError
from trimtab.consumer_sdk.consumer.asyncio import async_errors
from trimtab.consumer_sdk.consumer.asyncio.async_errors import consumer_stopped, to_client_error


@pytest.fixture
def without_aiokafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    async_errors.load_client_errors.cache_clear()
    yield
    async_errors.load_client_errors.cache_clear()


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (BrokerUnreachableError("a:1"), "KafkaConnectionError"),
        (GroupMembershipError("no"), "KafkaError"),
        (ConsumerClosedError("closed"), "ConsumerStoppedError"),
        (KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION)), "CommitFailedError"),
        (KafkaException(KafkaError(KafkaError._ASSIGNMENT_LOST)), "CommitFailedError"),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), "KafkaTimeoutError"),
        (KafkaException(KafkaError(KafkaError._FAIL)), "KafkaError"),
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), "TopicAuthorizationFailedError"),
    ],
)
def test_each_error_has_a_counterpart(error: Exception, name: str) -> None:
    """The class is aiokafka's, the cause ours."""
    translated = to_client_error(error)
    assert type(translated) is getattr(aiokafka.errors, name)
    assert name == "ConsumerStoppedError" or translated.__cause__ is error


def test_other_errors_stay() -> None:
    """What the caller did wrong keeps its class and text."""
    error = SettingError("x")
    assert to_client_error(error) is error


@pytest.mark.usefixtures("without_aiokafka")
def test_kafka_python_stands_in() -> None:
    """Without aiokafka the errors are kafka-python's of the same names."""
    error = to_client_error(KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID)))
    assert type(error) is kafka.errors.CommitFailedError
    assert type(consumer_stopped()) is ConsumerClosedError
