"""A batch of `kmq` reports each acknowledgement once, however its messages are accessed."""

from collections import Counter

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from support.marked import offsets
from trimtab.consumer_sdk.queues import QueueMessage, SettlementResult
from trimtab.consumer_sdk.queues.kmq.delivered_batch import DeliveredBatch
from trimtab.consumer_sdk.queues.settlement import SettlementRequest

SWEEP = -1


class RecordingSettler:
    """A settler that records its calls; its clock is `at`."""

    def __init__(self) -> None:
        self.at = 0.0
        self.with_acknowledgements: list[DeliveredBatch] = []
        self.settlements: list[tuple[int, SettlementRequest, bool]] = []

    def now(self) -> float:
        return self.at

    def on_acknowledged(self, batch: DeliveredBatch) -> None:
        self.with_acknowledgements.append(batch)

    def on_settled(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        self.settlements.append((message.offset, request, late))


def batch(where: list[tuple[int, int]], settler: RecordingSettler) -> DeliveredBatch:
    """Return messages at partitions and offsets, due at 10 s."""
    raws = [Message(topic="t", partition=p, offset=at, value=b"x") for p, at in where]
    return DeliveredBatch(raws, [1] * len(raws), 10.0, settler)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), unique=True, min_size=1),
    st.lists(st.integers(-1, 60)),
)
def test_each_acknowledgement_is_reported_exactly_once(
    where: list[tuple[int, int]], steps: list[int]
) -> None:
    """This holds for any order of messages and sweeps, and for gaps in the offsets."""
    settler = RecordingSettler()
    handed, reported, acknowledged = batch(where, settler), Counter[tuple[int, int]](), set[tuple[int, int]]()
    for step in [*steps, SWEEP]:
        if step != SWEEP:
            place = step % len(where)
            first = where[place] not in acknowledged
            assert handed[place].ack() is (SettlementResult.DONE if first else SettlementResult.REPEATED)
            acknowledged.add(where[place])
            assert [message.settled for message in handed] == [at in acknowledged for at in where]
            continue
        while settler.with_acknowledgements:
            for partition, ranges in settler.with_acknowledgements.pop().pop_acknowledged().items():
                reported.update((partition, offset) for offset in offsets(ranges))
    assert reported == Counter(acknowledged)
    opened = {(p, at) for (p, _), found in handed.group_offsets().items() for at in offsets(found)}
    assert opened == set(where)


def test_other_settlements_are_reported_as_given() -> None:
    """A retry and a late acknowledgement are recorded; an extension is visible in every view."""
    settler = RecordingSettler()
    handed = batch([(0, 5), (0, 6), (0, 7)], settler)
    assert handed[0].retry(3) is SettlementResult.DONE
    assert handed[2].extend(20) is SettlementResult.DONE
    settler.at = 12.0
    assert handed[1].ack() is SettlementResult.LATE
    assert [message.ack() for message in handed][1:] == [SettlementResult.REPEATED, SettlementResult.DONE]
    assert [(offset, late) for offset, _, late in settler.settlements] == [(5, False), (7, False), (6, True)]
    assert handed.pop_acknowledged() == {0: ((6, 7),)}
    assert handed[-1].offset == 7
    assert [message.offset for message in handed[1:]] == [6, 7]
