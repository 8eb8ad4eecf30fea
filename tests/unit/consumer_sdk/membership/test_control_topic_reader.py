"""Control topic reader without a broker."""

import random
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.record_parts import split_value
from trimtab.common.control_topics.topics import PLAN_TOPIC, WRITE_RATE_TOPIC
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.membership import control_topic_reader
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader

NOW = 1_800_000_000.0
PLAN = GroupPlan("g", 3, 1.0, 2, "mbf", 1000.0)
RATES = TopicWriteRates("g", "t", NOW, 30.0, "offsets", {0: PartitionLoad(1.0)})


class FixedClock(SystemClock):
    """A wall clock that stands still: the rates above stay new, however long the tests take."""

    def wall(self) -> float:
        return NOW


@dataclass(frozen=True, slots=True)
class Record:
    """A record as the reader takes it."""

    name: str
    content: bytes
    number: int = 0

    def topic(self) -> str:
        return self.name

    def value(self) -> bytes:
        return self.content

    def offset(self) -> int:
        return self.number


def as_message(record: Record) -> Any:
    return record


def make_reader() -> ControlTopicReader:
    settings = parse_consumer_settings({"bootstrap.servers": "x:1", "group.id": "g"})
    return ControlTopicReader(settings, FixedClock())


def test_a_client_that_does_not_close_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A close that never returns does not keep the process from ending."""
    closing, released = Event(), Event()

    class Stuck:
        def __init__(self, _: Any) -> None:
            """Accept any settings."""

        def assignment(self) -> list[Any]:
            return []

        def list_topics(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no broker")

        def close(self) -> None:
            closing.set()
            released.wait()

    monkeypatch.setattr(control_topic_reader, "DataConsumer", Stuck)
    monkeypatch.setattr(control_topic_reader, "CONTROL_CLIENT_CLOSE_TIMEOUT_S", 0.1)
    reader = make_reader()
    reader.start()
    try:
        reader.stop()
        assert closing.wait(10)
    finally:
        released.set()


HOSTILE_VALUES = (
    b"\xff" * 80,
    b"[" * 200_000,
    b"x" * 3_000_000,
    b'{"v":1,"group":"g","time":' + b"9" * 5000 + b"}",
    b'{"v":1,"group":["g"]}',
    b'{"v":2,"min_reader_version":2,',
    b'{"v":2,"min_reader_version":2,"group":"g","key":"k","part":0,"parts":1,"digest":"x","data":"eJw="}',
    *(
        PLAN.encode().replace(b"1000.0", figure)
        for figure in (b"NaN", b"Infinity", b"1" + b"0" * 400, b"[[]]")
    ),
)


@pytest.mark.parametrize("hostile", HOSTILE_VALUES, ids=lambda value: str(value[:30]))
def test_a_bad_record_is_skipped_alone(hostile: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It is reported once, with its offset, and the record behind it is applied."""
    reader = make_reader()
    for topic in (PLAN_TOPIC, WRITE_RATE_TOPIC):
        reader.apply_record(as_message(Record(topic, hostile, 41)))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert all("offset 41: skipped" in text and len(text) < 1000 for text in caplog.messages)
    reader.apply_record(as_message(Record(PLAN_TOPIC, PLAN.encode())))
    reader.apply_record(as_message(Record(WRITE_RATE_TOPIC, RATES.encode())))
    assert reader.plan == PLAN
    assert reader.build_leader_view().load.write_rates == {TopicPartition("t", 0): 1.0}


def test_large_write_rates_are_read_from_their_parts() -> None:
    """The rates of 20,000 partitions come into force with the last part, not before."""
    figure = random.Random(7).random  # noqa: S311 - repeatable
    loads = {n: PartitionLoad(figure(), figure(), figure(), n, figure()) for n in range(20_000)}
    rates = replace(RATES, partitions=loads)
    reader = make_reader()
    records = [record for _, record in split_value("g", rates.key, rates.encode())]
    assert len(records) > 1
    for record in records:
        assert not len(reader.build_leader_view().load.write_rates)
        reader.apply_record(as_message(Record(WRITE_RATE_TOPIC, record)))
    assert len(reader.build_leader_view().load.write_rates) == 20_000


def test_a_plan_that_is_half_read_keeps_the_plan_before() -> None:
    """Its target needs several records; one that cannot be carried out keeps it, too."""
    reader = make_reader()
    reader.apply_record(as_message(Record(PLAN_TOPIC, PLAN.encode())))
    chance = random.Random(7)  # noqa: S311 - repeatable
    numbers = tuple(chance.randrange(60_000) + 1 for _ in range(300_000))
    newer = replace(PLAN, epoch=4, target=PlanTarget(1, ("a",), 60_000, {"t": numbers}))
    spoilt = newer.encode().replace(b'"places":60000', b'"places":1')
    records = [record for _, record in split_value("g", "g", newer.encode())]
    assert len(records) > 1
    for record in (spoilt, *records[:-1]):
        reader.apply_record(as_message(Record(PLAN_TOPIC, record)))
        assert reader.plan == PLAN
    reader.apply_record(as_message(Record(PLAN_TOPIC, records[-1])))
    assert reader.plan == newer
