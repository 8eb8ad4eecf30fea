"""A table's halt: when it is tried again, when it is over, and what the log and the metrics say."""

import logging
import os
import random
from math import inf
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import (
    LakeUnavailableError,
    OffsetsExpiredError,
    TableSchemaMismatchError,
    TableWriteError,
)
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.writer.error_scope import to_table_error
from trimtab.consumer_sdk.lake.writer.halted_partitions import HaltedPartitions

P, Q = TopicPartition("a", 0), TopicPartition("a", 1)
ERROR = TableSchemaMismatchError("lake.a: no column for n int, in file-1f.parquet")
SAME = TableSchemaMismatchError("lake.a: no column for n int, in file-2e7.parquet")
OTHER = SettingError("lake.a: no column ts")
EXPIRED = OffsetsExpiredError("a-0: expired")


def sample(metrics: LakeMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def metrics() -> LakeMetrics:
    return LakeMetrics()


@pytest.fixture
def halted(metrics: LakeMetrics) -> HaltedPartitions:
    return HaltedPartitions(metrics, random.Random(7))  # noqa: S311 - jitter


def find_trial(halted: HaltedPartitions, now: float) -> float:
    """Return the seconds after which the table is tried, to a tenth, and begin the trial."""
    for tenth in range(3010):
        if halted.begin_trials(now + tenth / 10):
            return tenth / 10
    return inf


def test_delays_grow_up_to_five_minutes(halted: HaltedPartitions) -> None:
    """5 s, doubled by each further failure, of which jitter takes up to a half."""
    for due in (5, 10, 20, 40, 80, 160, 300, 300):
        halted.halt_table("lake.a", {P}, ERROR, 100.0)
        assert P in halted
        assert due / 2 - 0.1 <= find_trial(halted, 100.0) <= due + 0.1
        assert P not in halted  # read again


class WithoutJitter(random.Random):
    """Draws the upper end of a range."""

    def uniform(self, a: float, b: float) -> float:  # noqa: ARG002 - the interface
        return b


def test_an_outage_is_tried_again_within_half_a_minute(metrics: LakeMetrics) -> None:
    """It ends by itself, and may be everybody's; a table is tried as soon as its delay has passed."""
    halted = HaltedPartitions(metrics, WithoutJitter())
    for due in (5, 10, 20, 30, 30):
        halted.halt_table("lake.a", {P}, LakeUnavailableError("lake.a: refused"), 100.0)
        assert not halted.begin_trials(99.9 + due)
        assert halted.list_tried() == set()
        assert halted.begin_trials(100.0 + due) == {"lake.a": {P}}
        assert halted.list_tried() == {"lake.a"}


def test_a_halt_is_over_behind_the_records_that_failed(
    halted: HaltedPartitions, metrics: LakeMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows before them, or of other partitions, prove nothing; one line says that it is over."""
    caplog.set_level(logging.INFO, "trimtab.lake")
    halted.halt_table("lake.a", {P, Q}, ERROR, 0.0, {P: 5, Q: 9})
    find_trial(halted, 0.0)
    halted.halt_table("lake.a", {P, Q}, ERROR, 0.0, {P: 3, Q: 9})  # of an earlier record, in the trial
    halted.end_trial("lake.a", {P: 5, Q: 9})  # of a flush before the halt
    find_trial(halted, 0.0)
    for committed in ({P: 4, Q: 8}, {P: 4, Q: 9}, {}):
        halted.end_trial("lake.a", committed)
        assert sample(metrics, "trimtab_halted_tables", table="lake.a") == 1
        assert sample(metrics, "trimtab_halted_partitions", topic="a") == 2
        with pytest.raises(TableSchemaMismatchError):
            halted.raise_first_error()
    halted.end_trial("lake.a", {P: 5, Q: 9})
    halted.raise_first_error()
    assert sample(metrics, "trimtab_halted_tables", table="lake.a") == 0
    assert sample(metrics, "trimtab_halted_partitions", topic="a") == 0
    assert [line for line in caplog.messages if "resumed" in line] == caplog.messages[1:]


def test_the_log_tells_each_reason_once(halted: HaltedPartitions, caplog: pytest.LogCaptureFixture) -> None:
    """Names of files differ with each try."""
    for error in (ERROR, SAME, ERROR, OTHER, OTHER):
        halted.halt_table("lake.a", {P}, error, 0.0)
    first, second = caplog.messages
    assert first.startswith("lake.a halted, which touches no other table: lake.a: no column for n int")
    assert second.startswith("lake.a still halted, for another reason: lake.a: no column ts; tried again in ")


def test_new_partitions_share_the_halt_and_the_last_one_ends_it(
    halted: HaltedPartitions, metrics: LakeMetrics
) -> None:
    """Another owner tries the table by itself."""
    halted.halt_table("lake.a", {P}, ERROR, 0.0, {P: 5})
    halted.join_table("lake.a", {Q})
    halted.join_table("lake.b", {TopicPartition("b", 0)})
    assert sample(metrics, "trimtab_halted_partitions", topic="a") == 2
    assert halted.pop_news(lambda _: 1)[1] == {P: str(ERROR), Q: str(ERROR)}
    assert Q in halted
    assert TopicPartition("b", 0) not in halted
    halted.discard({P})
    find_trial(halted, 0.0)
    halted.end_trial("lake.a", {})  # what failed is another one's now
    halted.raise_first_error()
    halted.halt_table("lake.a", {Q}, ERROR, 0.0)
    halted.discard({Q})
    halted.raise_first_error()
    assert sample(metrics, "trimtab_halted_tables", table="lake.a") == 0


def test_a_partition_that_is_assigned_again_is_read(
    halted: HaltedPartitions, metrics: LakeMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    """What was not told yet of its halt is no news any more, nor is where its first record stood."""
    halted.halt({P}, EXPIRED)
    assert caplog.messages == ["a-0 not read until assigned again: a-0: expired"]
    halted.note_first_unread(P, 7)
    assert sample(metrics, "trimtab_halted_partitions", topic="a") == 1
    assert P in halted
    halted.discard({P})
    assert sample(metrics, "trimtab_halted_partitions", topic="a") == 0
    assert P not in halted
    assert halted.pop_news(lambda _: 1) == ({}, {})
    halted.halt({P}, EXPIRED)
    assert halted.pop_news(lambda _: None) == ({}, {})


def test_a_partition_that_is_halted_for_itself_shares_no_halt_of_its_table(
    halted: HaltedPartitions, metrics: LakeMetrics
) -> None:
    """Its records expired in a trial: the table waits for them no longer, and it keeps its reason."""
    halted.halt_table("lake.a", {P, Q}, ERROR, 0.0, {P: 5, Q: 5})
    find_trial(halted, 0.0)
    halted.halt({P}, EXPIRED)
    halted.halt_table("lake.a", {Q}, OTHER, 0.0)
    _, news = halted.pop_news(lambda _: 1)
    assert news == {P: str(EXPIRED), Q: str(OTHER)}
    find_trial(halted, 0.0)
    halted.end_trial("lake.a", {Q: 5})
    assert halted.pop_news(lambda _: 1) == ({Q: 1}, {Q: ""})
    assert sample(metrics, "trimtab_halted_tables", table="lake.a") == 0
    with pytest.raises(OffsetsExpiredError):
        halted.raise_first_error()


def test_an_unexpected_error_is_named_and_traced(
    halted: HaltedPartitions, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no secrets: drivers put URLs into their texts."""

    secret = os.urandom(8).hex()  # no part of a line that the traceback shows

    def fail() -> Any:
        raise ZeroDivisionError(f"jdbc:postgresql://u:{secret}@host/db\nand more")

    with pytest.raises(ZeroDivisionError) as raised:
        fail()
    halted.halt_table("lake.a", {P}, to_table_error("lake.a", raised.value), 0.0)
    with pytest.raises(TableWriteError, match=r"^table lake.a: unexpected ZeroDivisionError: jdbc"):
        halted.raise_first_error()
    assert "in fail" in caplog.text
    assert secret not in caplog.text
