"""Offset resets by the text of librdkafka's events: a truncation is not a missing commit.

A truncation takes a leader that lacks records, so the events are made by hand here, with the texts
of librdkafka 2.16 (rdkafka_offset.c); `tests/kafka/group/test_offset_resets.py` has those of a broker.
"""

import logging
import tomllib
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.client_adapters import to_partition
from trimtab.consumer_sdk.client.offset_reset import OffsetReset, OffsetResetHandler

ROOT = Path(__file__).parents[4]
P = TopicPartition("orders", 0)
CUT = (
    "Partition log truncation detected at offset 100 (leader epoch 3): broker end offset is 90 "
    "(offset leader epoch 3). Reset to INVALID.: Local: Partition log truncation detected "
    "(broker 1)"
)
NO_EPOCH = (
    "No epoch found less or equal to offset 100 (leader epoch 3): broker end offset is -1 (offset "
    "leader epoch -1). Reset using configured policy.: Local: Partition log truncation detected "
    "(broker 1)"
)
NO_COMMIT = "no previously committed offset available: Local: No offset stored"


class Data:
    """Fake of librdkafka's consumer with one partition, read up to `position`."""

    def __init__(self, high: int, position: int = 100) -> None:
        self.log: tuple[int, int] = (40, high)
        self.at = position
        self.silent = False
        self.reading = [RawPartition(*P)]
        self.start_offsets: list[int] = []

    def get_watermark_offsets(self, _partition: RawPartition, **_: float) -> tuple[int, int]:
        if self.silent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self.log

    def position(self, partitions: list[RawPartition]) -> list[RawPartition]:
        return [RawPartition(*to_partition(p), self.at) for p in partitions]

    def assignment(self) -> list[RawPartition]:
        return self.reading

    def incremental_unassign(self, _partitions: list[RawPartition]) -> None:
        self.reading = []

    def incremental_assign(self, partitions: list[RawPartition]) -> None:
        self.reading = partitions
        self.start_offsets += [p.offset for p in partitions]


def event(text: str, offset: int = OFFSET_INVALID) -> Message:
    """Return librdkafka's event of an offset out of range."""
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, text)
    return Message(topic=P.topic, partition=P.partition, offset=offset, error=error)


def resets(data: Data, policy: str) -> OffsetResetHandler:
    return OffsetResetHandler(cast("Any", data), {"auto.offset.reset": policy})


@pytest.mark.parametrize("high", [90, 250])
@pytest.mark.parametrize(("text", "offset"), [(CUT, OFFSET_INVALID), (NO_EPOCH, 100)])
@pytest.mark.parametrize(("policy", "first"), [("earliest", 40), ("latest", None)])
def test_a_truncated_log_is_a_regression_whatever_its_watermarks(
    high: int, text: str, offset: int, policy: str, first: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """With or without an offset in the event, shorter or grown again: logged in one line."""
    data = Data(high)
    handler = resets(data, policy)
    to = high if first is None else first
    assert handler.handle_reset_events([event(text, offset)]) == []
    (reset,) = handler.pop_resets()
    assert reset == OffsetReset(P, 100, 40, high, to, truncated=True)
    assert reset.is_regression
    assert data.start_offsets == [to]
    (line,) = caplog.messages
    assert "orders-0: its log was truncated below offset 100" in line
    assert "retention" not in line


def test_a_group_without_an_offset_starts_silently(caplog: pytest.LogCaptureFixture) -> None:
    """Code and missing offset are those of a truncation; only the text differs."""
    data = Data(250, OFFSET_INVALID)
    handler = resets(data, "earliest")
    assert handler.handle_reset_events([event(NO_COMMIT)]) == []
    (reset,) = handler.pop_resets()
    assert (reset, reset.is_regression) == (OffsetReset(P, None, 40, 250, 40), False)
    assert data.start_offsets == [40]
    assert caplog.messages == []


def test_a_truncation_is_logged_before_any_record_was_returned(caplog: pytest.LogCaptureFixture) -> None:
    """Without an offset it is not mistaken for a group without a commit."""
    handler = resets(Data(250, OFFSET_INVALID), "latest")
    handler.handle_reset_events([event(CUT)])
    (reset,) = handler.pop_resets()
    assert (reset.requested_offset, reset.is_regression, reset.skipped_offsets) == (None, True, 0)
    assert "its log was truncated below the records read so far" in caplog.text


def test_error_gives_a_truncation_to_the_application() -> None:
    """The event is returned, the reset is kept, and the partition is not resumed."""
    data = Data(250)
    handler = resets(data, "error")
    truncation = event(CUT)
    assert handler.handle_reset_events([truncation]) == [truncation]
    (reset,) = handler.pop_resets()
    assert (reset.resume_offset, reset.is_regression) == (None, True)
    assert data.start_offsets == []


def test_a_truncation_is_retried_until_the_leader_answers() -> None:
    """The partition is not resumed; the watermarks are queried again at each fetch."""
    data = Data(250)
    handler = resets(data, "earliest")
    data.silent = True
    assert handler.handle_reset_events([event(CUT)]) == []
    assert handler.handle_reset_events([]) == []
    assert (handler.pop_resets(), data.start_offsets) == ([], [])
    data.silent = False
    assert handler.handle_reset_events([]) == []
    assert [reset.truncated for reset in handler.pop_resets()] == [True]
    assert data.start_offsets == [40]
    assert (handler.handle_reset_events([]), handler.pop_resets()) == ([], [])


def test_a_truncation_of_a_released_partition_is_dropped() -> None:
    """The next owner starts at the committed offset and detects it itself."""
    data = Data(250)
    handler = resets(data, "earliest")
    data.silent = True
    handler.handle_reset_events([event(CUT)])
    data.silent, data.reading = False, []
    assert (handler.handle_reset_events([]), handler.pop_resets(), data.start_offsets) == ([], [], [])


@pytest.mark.parametrize(
    ("policy", "words"),
    [("earliest", "Nothing of the new log is skipped"), ("latest", "skips up to 50 records")],
)
def test_a_shorter_log_does_not_suggest_a_longer_retention(
    policy: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The line names the skipped part of the new log and does not mention retention."""
    data = Data(90)
    handler = resets(data, policy)
    with caplog.at_level(logging.WARNING):
        handler.handle_reset_events([event("fetch failed: Broker: Offset out of range (broker 1)", 100)])
    (line,) = caplog.messages
    assert words in line
    assert "offset 100 is gone, the log ends at 90" in line
    assert "retention" not in line


def test_the_text_of_a_truncation_is_the_librarys() -> None:
    """Its event has the code of every reset: only the text tells it, so later versions are excluded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # Before the bound is raised, read rdkafka_offset.c of the new version.
    assert "confluent-kafka>=2.16,<2.17" in project["dependencies"]
    folder = Path(confluent_kafka.__file__).parents[1]
    bundled = [
        *folder.glob("confluent_kafka.libs/librdkafka*"),
        *folder.glob("confluent_kafka/.dylibs/librdkafka*"),
    ]
    if not bundled:
        pytest.skip("librdkafka is not in the wheel")
    library = bundled[0].read_bytes()
    for text in (CUT, NO_EPOCH):
        assert text.partition("offset 100")[0].encode() + b"%s: broker end offset is %" in library
        assert str(KafkaError(KafkaError._LOG_TRUNCATION).str()) in text
    assert b"\0Local: Partition log truncation detected\0" in library
