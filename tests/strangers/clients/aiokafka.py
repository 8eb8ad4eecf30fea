"""A consumer of aiokafka, whose groups are eager: see telling.py for the options.

Its group callbacks run beside the application, so a lock keeps them from what is being handled.
"""

import asyncio
import sys
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from strangers.clients.telling import POLL_S, Teller

ASSIGNORS = {
    one.name: one for one in (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells what the group gives and takes; commits before it is taken."""

    def __init__(self, consumer: AIOKafkaConsumer, teller: Teller, handling: asyncio.Lock) -> None:
        self._consumer = consumer
        self._teller = teller
        self._handling = handling

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._teller.tell_partitions("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        partitions = list(revoked)
        async with self._handling:
            await commit(self._consumer, self._teller, partitions)
            self._teller.forget(partitions)
            self._teller.tell_partitions("revoked", partitions)


async def main(words: list[str]) -> None:
    teller, handling = Teller(words), asyncio.Lock()
    consumer = AIOKafkaConsumer(
        **teller.classic_settings,
        partition_assignment_strategy=[ASSIGNORS[name] for name in teller.assignors],
    )
    consumer.subscribe([teller.options["topic"]], listener=Listener(consumer, teller, handling))
    await consumer.start()
    while not teller.stopped.is_set():
        polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=teller.batch)
        async with handling:  # not while polling, which waits for a rebalance
            await handle(teller, [record for batch in polled.values() for record in batch])
            if teller.is_commit_due():
                await commit(consumer, teller, list(teller.uncommitted))
    await commit(consumer, teller, list(teller.uncommitted))
    while teller.is_closing():
        await asyncio.sleep(POLL_S)
        await commit(consumer, teller, list(teller.uncommitted))
    await consumer.stop()
    teller.tell("closed")


async def handle(teller: Teller, records: list[ConsumerRecord]) -> None:
    await asyncio.sleep(teller.work_s(len(records)))
    teller.tell_read((r.topic, r.partition, r.offset) for r in records)


async def commit(consumer: AIOKafkaConsumer, teller: Teller, partitions: Iterable[tuple[str, int]]) -> None:
    """Commit what was handled of these partitions; a refusal is told, and the next commit repeats it."""
    offsets = teller.handled_of(partitions)
    if not offsets:
        return
    try:
        await consumer.commit({TopicPartition(*p): offset for p, offset in offsets.items()})
    except KafkaError as error:
        teller.complain(error)
    else:
        teller.tell_committed(offsets)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
