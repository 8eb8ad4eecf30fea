"""What tables that do not answer in an assignment hold up; needs neither Spark nor a broker."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from unittest.mock import Mock

import pytest
from confluent_kafka import TopicPartition as RawPartition

from support.lake.writer_stand_ins import (
    CONFIG,
    EmptyConsumer,
    Lake,
    ManualClock,
    OtherRecord,
    Record,
    StartConsumer,
    UnavailableLake,
)
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.errors import LakeUnavailableError, TableAccessError
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter


class PartlyUnavailableLake(Lake):
    """A lake without access to some tables; counts the attempts."""

    def __init__(self, *unreachable: str) -> None:
        super().__init__()
        self.unreachable = {*unreachable}
        self.attempts: Counter[str] = Counter()
        self.before_open: Callable[[], object] = lambda: None

    def open_table(self, name: str) -> LakeTable | None:
        self.attempts[name] += 1
        self.before_open()
        return (UnavailableLake() if name in self.unreachable else super()).open_table(name)


def test_an_unreachable_table_ends_no_assignment(eventually: Callable[..., None]) -> None:
    """Its topic begins once it is reachable, where the group stands; one deadline holds for all tables."""
    lake, consumer, clock = PartlyUnavailableLake("lake.a", "lake.b"), StartConsumer(), SystemClock()
    clock.monotonic = lambda: SystemClock.monotonic() + skipped  # type: ignore[method-assign]
    skipped = 0.0
    config = CONFIG | {"lake.flush.timeout": "1 s"}
    writer = LakeWriter(consumer, config, lake=lake, clock=clock)
    writer.on_assign(None, [RawPartition(topic, 0) for topic in "abc"])
    writer.write([Record(10, 0), OtherRecord(20, 0)])
    assert min(lake.attempts["lake.a"], lake.attempts["lake.b"]) > 1
    assert {*consumer.stopped} == {"a", "b"}
    with pytest.raises(LakeUnavailableError, match=r"lake\.a: catalog or storage"):
        writer.raise_if_halted()
    lake.unreachable.clear()
    skipped += 5.0
    eventually(lambda: writer.write([]) or sorted(consumer.offsets) == [("a", 10), ("b", 20)])
    writer.close()


def test_a_trial_of_a_table_that_hangs_holds_up_nothing(eventually: Callable[..., None]) -> None:
    """Its start is asked for beside the reading, once: a client's timeout may be minutes."""
    lake, consumer, clock = PartlyUnavailableLake("lake.b"), StartConsumer(), ManualClock()
    writer = LakeWriter(consumer, CONFIG | {"lake.flush.timeout": "1 s"}, lake=lake, clock=clock)
    lake.before_open = lambda: setattr(clock, "now", clock.now + 1.0)  # no second attempt
    writer.on_assign(None, [RawPartition("a", 0), RawPartition("b", 0)])
    writer.write([OtherRecord(20, 0)])
    released = threading.Event()
    lake.before_open = lambda: released.wait(20)
    for _ in range(3):
        clock.now += 10.0
        writer.write([])
    assert lake.attempts["lake.b"] <= 2  # one at the assignment
    writer.on_revoke(None, [RawPartition("b", 0)])
    released.set()
    for opened in (False, True):
        eventually(lambda: writer.write([]) or not writer._halts.asked)  # pyright: ignore[reportPrivateUsage]
        assert consumer.offsets == [("a", 10), ("b", 20)][: 1 + opened]
        writer.on_assign(None, [RawPartition("b", 0)])
        writer.write([OtherRecord(20, 0)])
        lake.unreachable.clear()
        clock.now += 10.0
    writer.__exit__(KeyError)


def test_a_consumer_of_unreachable_tables_only_does_not_end() -> None:
    """It would end again after each restart, and each restart rebalances the group."""
    lake = PartlyUnavailableLake("lake.a", "lake.b")
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"lake.flush.timeout": "10 ms"}, lake=lake)
    writer.on_assign(None, [RawPartition("a", 0), RawPartition("b", 0)])
    writer.write([])
    with pytest.raises(LakeUnavailableError, match=r"lake\.a"):
        writer.raise_if_halted()
    writer.__exit__(KeyError)


def test_a_lake_that_was_never_reached_ends_the_first_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address may be wrong. Once a table was reached, it is an outage, which ends by itself."""
    lake = PartlyUnavailableLake("lake.a")
    monkeypatch.setattr(lake, "list_tables", UnavailableLake().list_tables)
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"lake.flush.timeout": "10 ms"}, lake=lake)
    for _ in range(2):
        with pytest.raises(LakeUnavailableError, match="the catalog does not answer"):
            writer.on_assign(None, [RawPartition("a", 0)])
        writer.raise_if_halted()
    writer.on_assign(None, [RawPartition("c", 0)])
    writer.on_revoke(None, [RawPartition("c", 0)])
    writer.on_assign(None, [RawPartition("a", 0)])
    with pytest.raises(LakeUnavailableError, match=r"lake\.a"):
        writer.raise_if_halted()
    writer.__exit__(KeyError)


def test_a_lake_that_lists_no_tables_for_this_writer_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing needs no right to list."""
    lake = PartlyUnavailableLake("lake.a")
    refuse = Mock(side_effect=TableAccessError("listing refused"))
    monkeypatch.setattr(lake, "list_tables", refuse)
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"lake.flush.timeout": "10 ms"}, lake=lake)
    writer.on_assign(None, [RawPartition("a", 0)])
    writer.write([])
    refuse.assert_called_once_with()
    writer.__exit__(KeyError)


def list_halted(metrics: LakeMetrics, topics: list[str]) -> list[str]:
    values = (
        (t, metrics.registry.get_sample_value("trimtab_halted_partitions", {"topic": t})) for t in topics
    )
    return [topic for topic, value in values if value]


def test_unreachable_tables_hold_up_an_assignment_together_not_one_after_another() -> None:
    """A callback holds up the group's rebalance: one deadline for 300; those that answer start."""
    topics = [f"t{number}" for number in range(300)]
    away = [topic for topic in topics if not topic.endswith("7")]
    lake, metrics = PartlyUnavailableLake(*(f"lake.{topic}" for topic in away)), LakeMetrics()
    config = CONFIG | {"lake.flush.timeout": "2 s"}
    writer = LakeWriter(EmptyConsumer(), config, lake=lake, metrics=metrics)
    began = time.monotonic()
    writer.on_assign(None, [RawPartition(topic, 0) for topic in topics])
    assert time.monotonic() - began < 10
    assert list_halted(metrics, topics) == away
    writer.__exit__(KeyError)


def test_a_table_that_hangs_in_an_assignment_is_halted_alone(eventually: Callable[..., None]) -> None:
    """It is waited for until the deadline, once; when its call returns, its topic begins."""
    lake, clock, metrics, released = PartlyUnavailableLake(), ManualClock(), LakeMetrics(), threading.Event()
    opened = lake.open_table
    lake.open_table = lambda name: (name == "lake.b" and not released.wait(60)) or opened(name)  # type: ignore[method-assign, assignment]
    consumer, config = StartConsumer(), CONFIG | {"lake.flush.timeout": "2 s"}
    writer = LakeWriter(consumer, config, lake=lake, clock=clock, metrics=metrics)
    began = time.monotonic()
    for _ in range(5):  # each would take the deadline
        writer.on_assign(None, [RawPartition(topic, 0) for topic in "abc"])
    assert time.monotonic() - began < 8
    assert (list_halted(metrics, [*"abc"]), {*consumer.started}) == (["b"], {"a"})
    with pytest.raises(LakeUnavailableError, match=r"lake\.b: .*has not returned"):
        writer.raise_if_halted()
    writer.write([OtherRecord(20, 0)])
    released.set()
    clock.now += 10.0
    eventually(lambda: writer.write([]) or ("b", 20) in consumer.offsets)
    assert (lake.attempts["lake.b"], list_halted(metrics, [*"abc"])) == (1, [])
    writer.__exit__(KeyError)


def test_more_hanging_tables_than_threads_do_not_halt_the_others_for_good(
    eventually: Callable[..., None],
) -> None:
    """What waited for a thread in vain is asked in its trial."""
    released, lake, clock, metrics = threading.Event(), Lake(), ManualClock(), LakeMetrics()
    opened, hanging = lake.open_table, [f"h{number}" for number in range(9)]
    lake.open_table = lambda name: (".h" in name and not released.wait(60)) or opened(name)  # type: ignore[method-assign, assignment]
    config = CONFIG | {"lake.flush.timeout": "1 s"}
    writer = LakeWriter(EmptyConsumer(), config, lake=lake, clock=clock, metrics=metrics)
    writer.on_assign(None, [RawPartition("c", 0)])  # the lake is reached
    writer.on_assign(None, [RawPartition(topic, 0) for topic in [*hanging, "z"]])
    assert list_halted(metrics, [*hanging, "z"]) == [*hanging, "z"]
    clock.now += 10.0
    eventually(lambda: writer.write([]) or list_halted(metrics, [*hanging, "z"]) == hanging)
    released.set()
    writer.__exit__(KeyError)


def test_a_lake_that_never_answered_and_hangs_ends_the_first_assignment() -> None:
    """Neither its tables nor their list hold it up beyond their deadlines."""
    lake, released = Lake(), threading.Event()
    lake.open_table = lambda _: released.wait(60) and None  # type: ignore[method-assign, assignment]
    lake.list_tables = lambda: [str(released.wait(60))]  # type: ignore[method-assign]
    writer = LakeWriter(EmptyConsumer(), CONFIG | {"lake.flush.timeout": "100 ms"}, lake=lake)
    with pytest.raises(LakeUnavailableError, match="did not list its tables"):
        writer.on_assign(None, [RawPartition("a", 0)])
    released.set()
    writer.__exit__(KeyError)
