"""What is said of `kmq`'s messages becomes markers, whatever else is said, and soon."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message

from trimtab.assignor.clock import SystemClock
from trimtab.consumer_sdk.errors import BadDelay
from trimtab.consumer_sdk.queues import Retry, worker
from trimtab.consumer_sdk.queues.handed import Handed
from trimtab.consumer_sdk.queues.markers import Kind, Marker, decode
from trimtab.consumer_sdk.queues.settling import Settler
from trimtab.consumer_sdk.queues.writing import Answered, Record, Writer

Eventually = Callable[..., None]


class Kept(Writer):
    """A writer that keeps markers in a list; those of partition 1 it cannot write."""

    def __init__(self) -> None:
        self.markers: list[Marker] = []

    def send(self, record: Record, answered: Answered) -> None:
        answered(record, "")
        if record.partition == 1:
            raise ValueError("not this one")
        self.markers.append(decode(record.value or b""))

    def poll(self) -> None:
        """Do nothing: every receipt has been given."""

    def flush(self, timeout: float) -> bool:
        del timeout
        return True


@pytest.fixture
def kept() -> Kept:
    """Return where markers land."""
    return Kept()


@pytest.fixture
def settler(kept: Kept) -> Iterator[Settler]:
    """Return a settler, and close it."""
    made = Settler("t.g.markers", kept, SystemClock())
    yield made
    made.close()


def batch(settler: Settler, partition: int = 0) -> Handed:
    """Return three messages in work."""
    raws = [Message(topic="t", partition=partition, offset=at, value=b"x") for at in range(3)]
    return Handed(raws, [1] * len(raws), settler.now() + 60, settler)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1, 1e306])
def test_what_is_no_time_is_refused_where_it_is_said(
    seconds: float, settler: Settler, kept: Kept
) -> None:
    """The caller hears of it, the message stays open, and nothing is written."""
    message = batch(settler)[0]
    with pytest.raises(BadDelay, match="no time to wait"):
        message.retry(seconds)
    with pytest.raises(BadDelay):
        message.extend(seconds)
    with pytest.raises(BadDelay):
        Retry(seconds)
    with pytest.raises(BadDelay):
        worker(retry_delay=seconds)
    assert not message.settled
    settler.flush(1)
    assert kept.markers == []


@pytest.mark.parametrize(
    ("reason", "written"),
    [(ValueError("oops"), "oops"), (Path("a/b"), "a/b"), ("file \udcff", "file ?"), (7, "7")],
)
def test_any_reason_is_kept_as_text(
    reason: object, written: str, settler: Settler, kept: Kept
) -> None:
    """An exception is the reason that people have in hand; what cannot be encoded is replaced."""
    batch(settler)[0].reject(reason)
    settler.flush(1)
    assert [(m.kind, m.reason) for m in kept.markers] == [(Kind.REJECT, written)]


def test_a_marker_that_cannot_be_written_stops_no_other(
    settler: Settler, kept: Kept, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told in the log; the thread goes on, with those of the same turn and of later ones."""
    batch(settler, partition=1)[0].retry()
    batch(settler)[0].ack()
    eventually(lambda: len(kept.markers) == 1)
    batch(settler)[1].ack()
    eventually(lambda: len(kept.markers) == 2)
    assert "a marker for partition 1 of t.g.markers is lost" in caplog.text
