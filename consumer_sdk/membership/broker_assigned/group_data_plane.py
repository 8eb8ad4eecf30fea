"""librdkafka's consumer as a member of its group (KIP-848), whose rebalances wait for the application.

librdkafka runs rebalance callbacks inside `consume` and `poll`, and takes the next call of
`incremental_unassign` as the release of what it revokes, whatever partitions that call has. So:

1. A callback reports its partitions and holds the rebalance: it calls the opposite method without a
   partition, which changes nothing, but keeps confluent-kafka from answering by itself.
2. While a revocation is held, `incremental_unassign` pauses partitions, which `release` stops. They are
   not part of `assignment`, and one that is assigned again starts after the release. Otherwise it first
   runs the callbacks that are due: one of them may be a revocation.
3. `serve` runs callbacks and returns no record: one that it fetches waits for the next `consume`.
   Records come before callbacks: until then it pauses all partitions once librdkafka's statistics tell
   that a callback is due, or `WAITING_BYTES` wait.
4. A record of `consume` or `serve` that is an error is passed to `on_error` first.
5. One thread at a time calls librdkafka (`FairConsumer`). A commit to a silent coordinator takes as long as
   the silence lasts: a plane that `is_abandoned` meanwhile has no assignment, and does not wait in `close`.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import methodcaller
from threading import Thread
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock
from trimtab.consumer_sdk.client.client_adapters import partition_of, to_partition
from trimtab.consumer_sdk.client.fair_consumer import FairConsumer
from trimtab.consumer_sdk.client.fair_lock import FairLock
from trimtab.consumer_sdk.membership.broker_assigned.heartbeat_statistics import (
    HeartbeatProof,
    parse_statistics,
)

PartitionCallback: TypeAlias = Callable[[frozenset[TopicPartition]], None]

CLOSE_TIMEOUT_S: Final = 5.0
WAITING_BYTES: Final = 4_000_000  # of records: a pause has those fetched again that librdkafka holds
GROUP_METADATA_HEADER: Final = b"CGMDv2:"  # rd_kafka_consumer_group_metadata_write in rdkafka_cgrp.c
_GET_ERROR: Final = methodcaller("error")


class GroupDataPlane(FairConsumer):
    """Consumer of librdkafka that joins its group; for `BrokerAssignedMember`."""

    def __init__(self, config: dict[str, Any], clock: Clock, access: FairLock | None = None) -> None:
        self.heartbeats = HeartbeatProof()
        self.on_error: Callable[[KafkaError], bool] = lambda _error: False  # returns whether it is handled
        self._clock = clock
        self._created_at = self._called_at = self._called_before_at = clock.monotonic()
        self._stats_cb: Callable[[str], Any] | None = config.get("stats_cb")
        self.is_abandoned = False
        self._closing = False
        self._revoking: frozenset[TopicPartition] | None = None  # the held revocation (rule 2)
        self._stopped: set[TopicPartition] = set()
        self._restarts: dict[TopicPartition, RawPartition] = {}
        self._paused: frozenset[TopicPartition] = frozenset()
        self._waiting: list[Message] = []  # rule 3
        self._held_back: set[TopicPartition] = set()  # paused until the next `consume` (rule 3)
        super().__init__({**config, "stats_cb": self._on_statistics}, access or FairLock())

    # -- group ------------------------------------------------------------------------------------

    def join(
        self,
        topics: Sequence[str],
        on_assigned: PartitionCallback,
        on_revoked: PartitionCallback,
        on_lost: PartitionCallback,
    ) -> None:
        """Subscribe; the callbacks run inside `consume` and `serve`.

        After `on_assigned`, `incremental_assign` has to be called, after the others `release`.
        """
        with self.access:
            super().subscribe(
                list(topics),
                on_assign=partial(self._hold_assignment, on_assigned),
                on_revoke=partial(self._hold_revocation, on_revoked),
                on_lost=partial(self._hold_revocation, on_lost),
            )

    def release(self) -> None:
        """Stop the partitions of the held revocation, which releases them to their next owner."""
        with self.access:
            assigned = {to_partition(p) for p in super().assignment()}
            gone = assigned & (self._stopped | (self._revoking or frozenset()))
            restarts = list(self._restarts.values())
            self._revoking = None
            self._stopped.clear()
            self._restarts.clear()
            self._drop_waiting(gone)
            super().incremental_unassign(_to_raw(gone))
            if restarts:
                super().incremental_assign(restarts)
                super().resume([p for p in restarts if to_partition(p) not in self._paused])

    def read_generation(self) -> int:
        """Return the member epoch; 0 or less outside of the group."""
        metadata: bytes = self.consumer_group_metadata()
        (generation,) = struct.unpack_from("=i", metadata, len(GROUP_METADATA_HEADER))
        return int(generation)

    def serve(self, timeout: float) -> None:
        """Run callbacks for `timeout` seconds."""
        deadline = self._clock.monotonic() + timeout
        with self.access:
            self._record_call()
            if self.heartbeats.is_callback_due or sum(map(len, self._waiting)) > WAITING_BYTES:
                self._hold_back()
            message = super().poll(timeout)
            if message is None:
                return
            self._waiting += self._pass_errors([message])
        self._clock.sleep(max(0.0, deadline - self._clock.monotonic()))  # else many would wait

    # -- librdkafka's methods ---------------------------------------------------------------------

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return records, those that `serve` fetched first."""
        with self.access:
            self._continue_held_back()
            messages = self._pop_waiting(num_messages)
            if len(messages) < num_messages:
                wait = 0 if messages else timeout
                self._record_call()
                messages += self._pass_errors(super().consume(num_messages - len(messages), wait))
            return messages

    def assignment(self) -> list[RawPartition]:
        """Return the partitions that are being read."""
        if self.is_abandoned:
            return []
        with self.access:
            reading = [p for p in super().assignment() if to_partition(p) not in self._stopped]
            return [*reading, *self._restarts.values()]

    def incremental_assign(self, partitions: list[RawPartition]) -> None:
        """Start to read; partitions that a held revocation keeps start after the release."""
        with self.access:
            later = {to_partition(p): p for p in partitions if to_partition(p) in self._stopped}
            self._restarts.update(later)
            super().incremental_assign([p for p in partitions if to_partition(p) not in later])

    def incremental_unassign(self, partitions: list[RawPartition]) -> None:
        """Stop to read; while a revocation is held, by a pause (rule 2)."""
        gone = set(map(to_partition, partitions))
        with self.access:
            if self._revoking is None:
                self._run_due_callbacks()
            self._drop_waiting(gone)
            if self._revoking is None:
                super().incremental_unassign(partitions)
                return
            self._stopped |= gone
            for partition in gone:
                self._restarts.pop(partition, None)
            super().pause(partitions)

    def pause(self, partitions: list[RawPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        with self.access:
            self._paused = self._paused.union(map(to_partition, partitions))
            super().pause(partitions)

    def resume(self, partitions: list[RawPartition]) -> None:
        """Return records of these partitions again."""
        with self.access:
            self._paused = self._paused.difference(map(to_partition, partitions))
            super().resume([p for p in partitions if to_partition(p) not in self._stopped])

    def seek(self, partition: RawPartition) -> None:
        """Continue at another offset."""
        with self.access:
            super().seek(partition)
            self._drop_waiting({to_partition(partition)})

    def position(self, partitions: list[RawPartition]) -> list[RawPartition]:
        """Return the offsets of the next records; a waiting one has not been read."""
        with self.access:
            positions = super().position(partitions)
        first: dict[TopicPartition, int] = {}
        for message in self._waiting:
            if message.error() is None:
                first.setdefault(partition_of(message), int(message.offset() or 0))
        for raw in positions:
            raw.offset = first.get(to_partition(raw), raw.offset)
        return positions

    def close(self) -> None:
        """Leave the group and close, in the background after `CLOSE_TIMEOUT_S`."""
        self._closing = True  # librdkafka waits for the answers to its last callbacks
        if self.access.is_mine:  # a signal handler inside another call
            super().close()
            return
        closer = Thread(target=super().close, name="trimtab-close", daemon=True)
        closer.start()
        closer.join(0 if self.is_abandoned else CLOSE_TIMEOUT_S)

    # -- inside -----------------------------------------------------------------------------------

    def _hold_assignment(self, report: PartitionCallback, _: Any, partitions: list[RawPartition]) -> None:
        if not self._closing:
            super().incremental_unassign([])  # rule 1
            report(frozenset(map(to_partition, partitions)))

    def _hold_revocation(self, report: PartitionCallback, _: Any, partitions: list[RawPartition]) -> None:
        if self._closing:
            return
        with self.access:
            self._revoking = frozenset(map(to_partition, partitions))
            super().incremental_assign([])  # rule 1
        report(self._revoking)

    def _hold_back(self) -> None:
        reading = [p for p in self.assignment() if to_partition(p) not in self._paused | self._held_back]
        self._held_back.update(map(to_partition, reading))
        super().pause(reading)

    def _continue_held_back(self) -> None:
        held, self._held_back = self._held_back, set()
        if held:
            super().resume(_to_raw(held - self._paused - self._stopped))

    def _record_call(self) -> None:
        self._called_before_at, self._called_at = self._called_at, self._clock.monotonic()

    def _run_due_callbacks(self) -> None:
        reading = [p for p in super().assignment() if to_partition(p) not in self._paused]
        super().pause(reading)  # records come before a callback else
        try:
            while (message := super().poll(0)) is not None:
                self._waiting += self._pass_errors([message])
        finally:
            self.resume(reading)

    def _on_statistics(self, text: str) -> None:
        if (sample := parse_statistics(text)) is not None:
            # Both are lower bounds. librdkafka's clock stands still while the machine is suspended; and
            # statistics come before records, so that the call before this one would have run this callback.
            at = max(self._created_at + sample.at, self._called_before_at)
            self.heartbeats.add_sample(sample._replace(at=at))
        if self._stats_cb is not None:
            self._stats_cb(text)

    def _pass_errors(self, messages: list[Message]) -> list[Message]:
        # Python's `any`, since the usual case are thousands of messages without an error.
        if not any(map(_GET_ERROR, messages)):
            return messages
        return [m for m in messages if (error := m.error()) is None or not self.on_error(error)]

    def _pop_waiting(self, limit: int) -> list[Message]:
        with self.access:
            held = self._paused | self._stopped
            taken: list[Message] = []
            kept: list[Message] = []
            for message in self._waiting:
                is_held = message.error() is None and partition_of(message) in held
                (kept if is_held or len(taken) == limit else taken).append(message)
            self._waiting = kept
            return taken

    def _drop_waiting(self, partitions: Collection[TopicPartition]) -> None:
        with self.access:
            self._waiting = [
                m for m in self._waiting if m.error() is not None or partition_of(m) not in partitions
            ]


def _to_raw(partitions: Iterable[TopicPartition]) -> list[RawPartition]:
    return [RawPartition(*p) for p in sorted(partitions)]
