"""Records of a queue: as large as the broker allows, shortened if it refuses their size."""

from collections.abc import Sequence

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.queues.durable_producer import (
    TOO_LARGE_REASON,
    DurableProducer,
    ProducerRecord,
    write_or_shorten,
)
from trimtab.consumer_sdk.queues.kmq import redelivery_decision
from trimtab.consumer_sdk.queues.kmq.markers import MarkerKind
from trimtab.consumer_sdk.queues.kmq.redelivery_state import DueMessage
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

LIMIT = 10


def record(size: int) -> ProducerRecord:
    return ProducerRecord("orders", 0, b"x" * size)


class Broker:
    """Stores batches of up to LIMIT bytes and refuses larger ones."""

    def __init__(self) -> None:
        self.stored: list[ProducerRecord] = []

    def write(self, records: Sequence[ProducerRecord]) -> dict[int, str]:
        sizes = [len(r.value or b"") for r in records]
        if sum(sizes) > LIMIT:
            return dict.fromkeys(range(len(records)), TOO_LARGE_REASON)
        self.stored += records
        return {}


def test_the_client_does_not_limit_the_size_of_a_message() -> None:
    """A message above librdkafka's default of one megabyte is sent and waits for a broker's answer."""
    writer = DurableProducer({"bootstrap.servers": "localhost:1"}, SystemClock())
    assert writer.write_and_wait([record(2_000_000)], 0) == {0: "no answer in time"}
    writer._producer.purge()


def test_only_a_record_that_is_too_large_by_itself_is_shortened() -> None:
    """A batch is refused as a whole; each of its records is written alone before it is shortened."""
    broker, short = Broker(), ProducerRecord("dead", 0, None)
    written, failed = write_or_shorten(broker.write, [record(6), record(11), record(7)], lambda _: short)
    assert (written, failed) == ([record(6), short, record(7)], {})
    assert broker.stored == written


def test_a_record_that_fails_otherwise_is_not_shortened() -> None:
    """A record without an answer, shortened or not, is reported by its index and retried as a whole."""
    answers = iter([{0: "away", 2: TOO_LARGE_REASON}, {0: TOO_LARGE_REASON}, {0: "no answer in time"}])
    written, failed = write_or_shorten(
        lambda _: next(answers), [record(1), record(2), record(3)], lambda _: record(0)
    )
    assert (written, failed) == ([record(1), record(2), record(0)], {0: "away", 2: "no answer in time"})


def test_the_dead_letter_of_a_too_large_message_has_reason_and_origin() -> None:
    """The reason for dead-lettering comes first, if there is one."""
    settings = parse_queue_settings("orders", {"bootstrap.servers": "localhost:1", "group.id": "g"})
    retried = DueMessage(7, 1, MarkerKind.RETRY, "retry", 0)
    assert redelivery_decision.too_large_reason(retried, settings).startswith("cannot be delivered again")
    reason = redelivery_decision.too_large_reason(
        DueMessage(7, 1, MarkerKind.REJECT, "no such customer", 0), settings
    )
    letter = redelivery_decision.build_lost_letter(retried, 3, settings, reason)
    assert (letter.topic, letter.partition, letter.value) == (settings.dead_letter_topic, 3, None)
    headers = dict(letter.headers)
    assert headers["trimtab.origin"] == b"orders/3/7"
    assert (headers["trimtab.reason"] or b"").startswith(b"no such customer; without its value")
