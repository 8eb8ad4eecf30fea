"""Offset resets on a real broker: where the consumer resumes, and what it logs."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.client.offset_reset import OffsetReset

pytestmark = pytest.mark.broker


@pytest.fixture(params=["classic", "consumer"])
def config(config: dict[str, Any], use_protocol: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of both group protocols."""
    chosen: dict[str, Any] = use_protocol(config, request.param)
    return chosen


@pytest.fixture
def expired(topic: Callable[..., str], admin: Any, config: dict[str, Any], feed: Any) -> str:
    """Return a topic with records 30 to 39, of which the group has committed offset 5."""
    name = topic(partitions=1)
    feed.write(name, 1, 10)
    with closing(Consumer({**config, "enable.auto.commit": False})) as reader:
        reader.subscribe([name])
        assert len(reader.consume(10, timeout=20)) == 10
        reader.commit(offsets=[RawPartition(name, 0, 5)], asynchronous=False)
    feed.write(name, 1, 30)
    admin.delete_records([RawPartition(name, 0, 30)])[RawPartition(name, 0)].result(30)
    return name


def test_earliest_resumes_at_the_start_of_the_log(
    expired: str, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The remaining records are read; one line has the lost offsets, their number, a remedy."""
    with closing(Consumer(config)) as reader:
        reader.subscribe([expired])
        assert [m.offset() for m in reader.consume(10, timeout=20)] == list(range(30, 40))
        assert reader.pop_offset_resets() == [OffsetReset(TopicPartition(expired, 0), 5, 30, 40, 30)]
        assert reader.pop_offset_resets() == []
    (line,) = [line for line in caplog.messages if "are gone" in line]
    assert "offsets 5 to 29 are gone" in line
    assert "up to 25 records" in line
    assert "retention.ms" in line


def test_latest_resumes_at_the_end_of_the_log(
    expired: str, config: dict[str, Any], feed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The remaining records are skipped; the line counts them apart from the deleted ones."""
    with closing(Consumer({**config, "auto.offset.reset": "latest"})) as reader:
        reader.subscribe([expired])
        while not (resets := reader.pop_offset_resets()):
            assert reader.consume(1, timeout=0.1) == []
        assert resets == [OffsetReset(TopicPartition(expired, 0), 5, 30, 40, 40)]
        feed.write(expired, 1, 2)
        assert [m.offset() for m in reader.consume(2, timeout=20)] == [40, 41]
    assert "skips up to 10 more that still exist" in caplog.text


def test_error_returns_the_event_to_the_application(expired: str, config: dict[str, Any]) -> None:
    """With `error` the application gets librdkafka's event with the requested offset, and no record."""
    with closing(Consumer({**config, "auto.offset.reset": "error"})) as reader:
        reader.subscribe([expired])
        (event,) = reader.consume(1, timeout=20)
        error = event.error()
        assert error is not None
        assert (error.code(), event.offset()) == (KafkaError._AUTO_OFFSET_RESET, 5)
        assert [reset.resume_offset for reset in reader.pop_offset_resets()] == [None]
        assert reader.consume(1, timeout=0.5) == []


@pytest.mark.parametrize(("policy", "first"), [("earliest", 30), ("latest", 40)])
def test_a_group_without_an_offset_skips_nothing(
    expired: str, config: dict[str, Any], feed: Any, policy: str, first: int
) -> None:
    """A group without a commit starts without a reset and without a log line."""
    new = {**config, "group.id": f"{config['group.id']}-new", "auto.offset.reset": policy}
    with closing(Consumer(new)) as reader:
        started: list[int] = []
        reader.subscribe([expired], on_assign=lambda _, ps: started.append(len(ps)))
        while not started:
            reader.consume(0, timeout=0.1)
        while reader.position([RawPartition(expired, 0)])[0].offset < 0:
            feed.write(expired, 1, 1)
            if messages := reader.consume(1, timeout=1):
                assert messages[0].offset() >= first
                assert policy == "latest" or messages[0].offset() == first
        assert reader.pop_offset_resets() == []


def test_a_log_that_ends_below_the_offset_is_a_regression(
    topic: Callable[..., str], config: dict[str, Any], feed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A recreated topic is read from its start; the log line explains why."""
    name = topic(partitions=1)
    feed.write(name, 1, 3)
    with closing(Consumer(config)) as reader:
        reader.assign([RawPartition(name, 0, 10)])
        assert [m.offset() for m in reader.consume(3, timeout=20)] == [0, 1, 2]
        (reset,) = reader.pop_offset_resets()
    assert reset == OffsetReset(TopicPartition(name, 0), 10, 0, 3, 0)
    assert (reset.is_regression, reset.skipped_offsets) == (True, 0)
    assert "the topic was deleted and created again" in caplog.text
    assert "retention" not in caplog.text
