"""A batch of `kmq` reports each acknowledgement once, however its messages are accessed."""

from collections import Counter

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st
from marked import offsets

from trimtab.consumer_sdk.queues import QueueMessage, SettlementResult
from trimtab.consumer_sdk.queues.kmq.delivered_batch import DeliveredBatch
from trimtab.consumer_sdk.queues.settlement import SettlementRequest

SWEEP = -1


class Heard:
    """A settler that records its calls; its clock is `at`."""

    def __init__(self) -> None:
        self.at = 0.0
        self.woken: list[DeliveredBatch] = []
        self.noted: list[tuple[int, SettlementRequest, bool]] = []

    def now(self) -> float:
        return self.at

    def on_acknowledged(self, batch: DeliveredBatch) -> None:
        self.woken.append(batch)

    def on_settled(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        self.noted.append((message.offset, request, late))


def batch(where: list[tuple[int, int]], heard: Heard) -> DeliveredBatch:
    """Return messages at partitions and offsets, due at 10 s."""
    raws = [Message(topic="t", partition=p, offset=at, value=b"x") for p, at in where]
    return DeliveredBatch(raws, [1] * len(raws), 10.0, heard)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), unique=True, min_size=1),
    st.lists(st.integers(-1, 60)),
)
def test_each_acknowledgement_is_reported_exactly_once(
    where: list[tuple[int, int]], steps: list[int]
) -> None:
    """This holds for any order of messages and sweeps, and for gaps in the offsets."""
    heard = Heard()
    handed, told, said = batch(where, heard), Counter[tuple[int, int]](), set[tuple[int, int]]()
    for step in [*steps, SWEEP]:
        if step != SWEEP:
            place = step % len(where)
            first = where[place] not in said
            assert handed[place].ack() is (SettlementResult.DONE if first else SettlementResult.REPEATED)
            said.add(where[place])
            assert [message.settled for message in handed] == [at in said for at in where]
            continue
        while heard.woken:
            for partition, ranges in heard.woken.pop().pop_acknowledged().items():
                told.update((partition, offset) for offset in offsets(ranges))
    assert told == Counter(said)
    opened = {(p, at) for (p, _), found in handed.group_offsets().items() for at in offsets(found)}
    assert opened == set(where)


def test_other_settlements_are_reported_as_given() -> None:
    """A retry and a late acknowledgement are recorded; an extension is visible in every view."""
    heard = Heard()
    handed = batch([(0, 5), (0, 6), (0, 7)], heard)
    assert handed[0].retry(3) is SettlementResult.DONE
    assert handed[2].extend(20) is SettlementResult.DONE
    heard.at = 12.0
    assert handed[1].ack() is SettlementResult.LATE
    assert [message.ack() for message in handed][1:] == [SettlementResult.REPEATED, SettlementResult.DONE]
    assert [(offset, late) for offset, _, late in heard.noted] == [(5, False), (7, False), (6, True)]
    assert handed.pop_acknowledged() == {0: ((6, 7),)}
    assert handed[-1].offset == 7
    assert [message.offset for message in handed[1:]] == [6, 7]
