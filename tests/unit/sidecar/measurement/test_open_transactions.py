"""Which open transactions are reported, and with what."""

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.measurement.open_transactions import OpenProducer, OpenTransactionTracker
from trimtab.sidecar.measurement.write_rate import OffsetReadings

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def look(stable: dict[TopicPartition, int], end: int = 100, committed: int = 0) -> OffsetReadings:
    ends, commits = dict.fromkeys(stable, end), dict.fromkeys(stable, committed)
    return OffsetReadings(tuple(stable), ends, dict.fromkeys(stable, 0), commits, stable_offsets=stable)


def test_a_transaction_is_reported_once_it_stands_still() -> None:
    """Its producer is asked for once."""
    asked: list[tuple[TopicPartition, int]] = []

    def find(partition: TopicPartition, offset: int) -> OpenProducer:
        asked.append((partition, offset))
        return OpenProducer(7, "flink-3")

    tracker = OpenTransactionTracker()
    found = [
        tracker.find_open(now, look({A: 40, B: 60}, end=100 + int(now)), find)
        for now in (0.0, 50.0, 60.0, 70.0)
    ]
    assert found[:2] == [{}, {}]
    assert found[2] == {
        A: "of producer 7 ('flink-3'), open for 60 s, 120 offsets cannot be read with read_committed",
        B: "open for 60 s, 100 offsets cannot be read with read_committed",
    }
    assert asked == [(A, 40)]


def test_a_producer_that_no_broker_told_is_asked_for_again() -> None:
    """A request may fail for a moment; a broker that never tells is asked once a minute."""
    asked: list[float] = []
    tracker = OpenTransactionTracker()
    for now in range(0, 200, 10):

        def find(*_: object, now: float = now) -> OpenProducer | None:
            asked.append(now)
            return OpenProducer(7, None) if now >= 180 else None

        found = tracker.find_open(float(now), look({A: 40}), find)
    assert asked == [60, 120, 180]
    assert found[A].startswith("of producer 7, open for 190 s")


def test_transactions_that_follow_each_other_are_not_reported() -> None:
    """The last stable offset moves; nor is one that hides nothing, or of a group that reads all the same."""
    tracker = OpenTransactionTracker()
    for now in range(0, 300, 10):
        for reading in (look({A: now}, 1_000), look({A: 100}), look({A: 40}, committed=60)):
            assert tracker.find_open(float(now), reading, lambda *_: None) == {}
