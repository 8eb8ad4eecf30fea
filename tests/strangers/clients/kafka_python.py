"""A consumer of kafka-python: see telling.py for the options."""

import sys
from collections.abc import Iterable
from typing import TypeAlias

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from strangers.clients.telling import POLL_S, Teller

ASSIGNORS = {
    one.name: one
    for one in (
        *(CooperativeStickyAssignor, RangePartitionAssignor),
        *(RoundRobinPartitionAssignor, StickyPartitionAssignor),
    )
}
COMMIT_TIMEOUT_MS = 5000
Offsets: TypeAlias = dict[tuple[str, int], int]
"""Next offset to read by partition."""


class Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Tells what the group gives and takes; commits before it is taken. It runs while `poll` waits."""

    def __init__(self, consumer: KafkaConsumer, teller: Teller) -> None:
        self._consumer = consumer
        self._teller = teller

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._teller.tell_partitions("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        partitions = list(revoked)
        offsets = self._teller.handled_of(partitions)
        try:
            if offsets:
                await self._consumer.commit_async(build_request(offsets))
                self._teller.tell_committed(offsets)
        except KafkaError as error:
            self._teller.complain(error)
        self._teller.forget(partitions)
        self._teller.tell_partitions("revoked", partitions)

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        partitions = list(lost)
        self._teller.forget(partitions)
        self._teller.tell_partitions("lost", partitions)


def main(words: list[str]) -> None:
    teller = Teller(words)
    consumer = KafkaConsumer(
        **teller.classic_settings,
        partition_assignment_strategy=[ASSIGNORS[name] for name in teller.assignors],
    )
    consumer.subscribe([teller.options["topic"]], listener=Listener(consumer, teller))
    while not teller.stopped.is_set():
        handle(consumer, teller)
        if teller.is_commit_due():
            commit(consumer, teller)
    commit(consumer, teller)
    while teller.is_closing():
        handle(consumer, teller)
        commit(consumer, teller)
    consumer.close()
    teller.tell("closed")


def handle(consumer: KafkaConsumer, teller: Teller) -> None:
    polled = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=teller.batch)
    records = [record for batch in polled.values() for record in batch]
    teller.stopped.wait(teller.work_s(len(records)))
    teller.tell_read((r.topic, r.partition, r.offset) for r in records)


def commit(consumer: KafkaConsumer, teller: Teller) -> None:
    """Commit what was handled; a refusal is told, and the next commit repeats it."""
    offsets = dict(teller.uncommitted)
    if not offsets:
        return
    try:
        consumer.commit(build_request(offsets), timeout_ms=COMMIT_TIMEOUT_MS)
    except KafkaError as error:
        teller.complain(error)
    else:
        teller.tell_committed(offsets)


def build_request(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}


if __name__ == "__main__":
    main(sys.argv[1:])
