"""The lag that a leader asks for."""

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaException

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.consumer_sdk.membership import group_lag
from trimtab.consumer_sdk.membership.group_lag import GroupLag, measure_lags

ONE, TWO, LEADERLESS, UNREADABLE, UNREAD = (TopicPartition("t", n) for n in range(5))
COMMITS = {ONE.partition: 70, UNREAD.partition: 0}
OFFSETS = {OFFSET_END: 100, OFFSET_BEGINNING: 40}


class Broker:
    """Answers as a consumer: partitions 0 and 4 have a commit, 2 no leader, 3 an unreadable commit."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.config = config

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[Any]:
        assert timeout
        return [answer(p, OFFSETS[p.offset], failed=p.partition == LEADERLESS.partition) for p in asked]

    def committed(self, asked: list[Any], timeout: float) -> list[Any]:
        assert timeout
        return [
            answer(p, COMMITS.get(p.partition, OFFSET_INVALID), failed=p.partition == UNREADABLE.partition)
            for p in asked
        ]

    def close(self) -> None:
        """Do nothing."""


def answer(asked: Any, offset: int, *, failed: bool) -> Any:
    error = "no leader" if failed else None
    return SimpleNamespace(topic=asked.topic, partition=asked.partition, offset=offset, error=error)


def as_consumer(broker: Broker) -> Any:
    return broker


@pytest.mark.parametrize(("from_beginning", "uncommitted"), [(True, 60), (False, 0)])
def test_lag_is_the_end_less_the_commit(*, from_beginning: bool, uncommitted: int) -> None:
    """Without a commit the reset decides; a partition without an answer is left out."""
    asked = [ONE, TWO, LEADERLESS, UNREADABLE, UNREAD]
    lags = measure_lags(as_consumer(Broker()), asked, from_beginning=from_beginning)
    assert lags == {ONE: 30, TWO: uncommitted, UNREAD: 60}


@pytest.mark.parametrize(
    ("reset", "lag"),
    [("latest", 0), ("largest", 0), ("end", 0), (None, 0), ("earliest", 60), ("error", 60), ("none", 60)],
)
def test_any_reset_but_latest_counts_from_the_beginning(
    reset: str | None, lag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-5337: earliest "(or any other value)"; librdkafka's default is latest."""
    monkeypatch.setattr(group_lag, "DataConsumer", Broker)
    config = {} if reset is None else {"auto.offset.reset": reset}
    assert GroupLag("g", config).measure(PartitionIndex.from_partitions([TWO])) == {TWO: lag}


def test_a_slow_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the decision would be by count."""

    def connect_slowly(_: Any) -> Broker:
        Event().wait(0.2)
        return Broker()

    monkeypatch.setattr(group_lag, "DataConsumer", connect_slowly)
    assert GroupLag("g", {}).measure(PartitionIndex.from_partitions([ONE])) == {ONE: 30}


def test_brokers_that_do_not_answer_hold_up_the_group_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The previous values serve; an error does the same."""
    released = Event()

    def get_stuck(_: Any) -> Any:
        released.wait()
        raise KafkaException("too late")

    lag, index = GroupLag("g", {"auto.offset.reset": "earliest"}), PartitionIndex.from_partitions([TWO])
    monkeypatch.setattr(group_lag, "DataConsumer", Broker)
    before = lag.measure(index)
    monkeypatch.setattr(group_lag, "LAG_TIMEOUT_S", 0.05)
    monkeypatch.setattr(group_lag, "DataConsumer", get_stuck)
    assert lag.measure(index) == before == {TWO: 60}
    released.set()
    assert "no answer within 0.05 s; using the previous values" in caplog.text

    def refuse(_: Any) -> Any:
        raise KafkaException("no permission")

    monkeypatch.setattr(group_lag, "LAG_TIMEOUT_S", 10)
    monkeypatch.setattr(group_lag, "DataConsumer", refuse)
    assert lag.measure(index) == before
    assert "no permission; using the previous values" in caplog.text
