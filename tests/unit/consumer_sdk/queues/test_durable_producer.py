"""What a queue writes: as large as the broker allows, and shorter where it does not."""

from collections.abc import Sequence

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.queues import redelivery_decision
from trimtab.consumer_sdk.queues.durable_producer import (
    TOO_LARGE_REASON,
    DurableProducer,
    ProducerRecord,
    write_or_shorten,
)
from trimtab.consumer_sdk.queues.kmq.markers import MarkerKind
from trimtab.consumer_sdk.queues.kmq.redelivery_state import DueMessage
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

LIMIT = 10


def of(size: int) -> ProducerRecord:
    return ProducerRecord("orders", 0, b"x" * size)


class Broker:
    """Takes batches of up to LIMIT bytes, and keeps none of a larger one."""

    def __init__(self) -> None:
        self.kept: list[ProducerRecord] = []

    def write(self, records: Sequence[ProducerRecord]) -> dict[int, str]:
        sizes = [len(record.value or b"") for record in records]
        if sum(sizes) > LIMIT:
            return dict.fromkeys(range(len(records)), TOO_LARGE_REASON)
        self.kept += records
        return {}


def test_how_large_a_message_may_be_is_not_decided_by_the_client() -> None:
    """A message above librdkafka's usual megabyte is sent, and waits for a broker's answer."""
    writer = DurableProducer({"bootstrap.servers": "localhost:1"}, SystemClock())
    assert writer.write_and_wait([of(2_000_000)], 0) == {0: "no answer in time"}
    writer._producer.purge()


def test_only_what_is_too_large_by_itself_is_shortened() -> None:
    """A batch is refused as a whole; each of its records is tried alone before it is cut."""
    broker, short = Broker(), ProducerRecord("dead", 0, None)
    written, failed = write_or_shorten(broker.write, [of(6), of(11), of(7)], lambda _: short)
    assert (written, failed) == ([of(6), short, of(7)], {})
    assert broker.kept == written


def test_what_fails_otherwise_is_not_shortened() -> None:
    """No answer, also to the shorter record, is told of the place; it is tried again as a whole."""
    answers = iter([{0: "away", 2: TOO_LARGE_REASON}, {0: TOO_LARGE_REASON}, {0: "no answer in time"}])
    written, failed = write_or_shorten(lambda _: next(answers), [of(1), of(2), of(3)], lambda _: of(0))
    assert (written, failed) == ([of(1), of(2), of(0)], {0: "away", 2: "no answer in time"})


def test_the_dead_letter_of_what_is_too_large_says_why_and_where_it_stands() -> None:
    """The reason it was given up for comes first, if there is one."""
    found = parse_queue_settings("orders", {"bootstrap.servers": "localhost:1", "group.id": "g"})
    again = DueMessage(7, 1, MarkerKind.RETRY, "retry", 0)
    assert redelivery_decision.too_large_reason(again, found).startswith("cannot be delivered again")
    reason = redelivery_decision.too_large_reason(
        DueMessage(7, 1, MarkerKind.REJECT, "no such customer", 0), found
    )
    letter = redelivery_decision.build_lost_letter(again, 3, found, reason)
    assert (letter.topic, letter.partition, letter.value) == (found.dead_letter_topic, 3, None)
    said = dict(letter.headers)
    assert said["trimtab.origin"] == b"orders/3/7"
    assert (said["trimtab.reason"] or b"").startswith(b"no such customer; without its value")
