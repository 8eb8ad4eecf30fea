"""Stores and commits offsets: through the group's member, or without a subscription by librdkafka.

Any thread may commit, also while another one releases the partitions: no commit of this consumer may
come after that of the release, since it would rewind the next owner. An asynchronous commit is queued
under the lock of the partitions' state, before the release's, which repeats its offsets. One that waits is
checked again on the I/O thread, just before its request; meanwhile a release leaves its partitions out.
"""

import logging
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.client_adapters import (
    has_offset,
    list_client_errors,
    offsets_to_commit,
    to_confluent_error,
    to_partition,
    to_raw_offsets,
)
from trimtab.consumer_sdk.client.fair_lock import FairLock
from trimtab.consumer_sdk.client.membership_events import CommitCompleted, CommitPosition
from trimtab.consumer_sdk.consumer.cluster_queries import ClusterQueries
from trimtab.consumer_sdk.consumer.fetch_control import stop_fetching
from trimtab.consumer_sdk.consumer.handler_time import HandlerTime
from trimtab.consumer_sdk.consumer.partition_state import build_final_commit
from trimtab.consumer_sdk.membership.membership import Membership
from trimtab.consumer_sdk.telemetry.consumer_spans import ConsumerSpans

log = logging.getLogger("trimtab.consumer_sdk")

COMMIT_TIMEOUT_S: Final = 30.0
LAST_COMMIT_TIMEOUT_S: Final = 5.0  # no request follows: `release_watch.CONFIRMATION_TIMEOUT_S` is longer
_NOTHING_TO_COMMIT: Final = KafkaError(KafkaError._NO_OFFSET)  # noqa: SLF001 - its public name


class OffsetCommits(ClusterQueries):
    """Methods of `Consumer` that store and commit offsets."""

    _access: FairLock  # to the data plane; taken before the partitions' lock, and never after it
    _handler_time: HandlerTime
    _next_auto_commit_at: float
    _spans: ConsumerSpans

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[RawPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 - confluent-kafka's signature
    ) -> list[RawPartition] | None:
        """Commit a message's, the given, or all changed offsets, with the member's generation.

        Waits if not `asynchronous`. Partitions without a valid offset are left out. Raises
        KafkaException: ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID if the group removed this member,
        _ASSIGNMENT_LOST for a partition that it does not own, _INVALID_ARG for an error event,
        _NO_OFFSET if there is nothing to commit (asynchronously: for `on_commit`).
        """
        self._check_not_closed()
        requested = offsets_to_commit(message, offsets)
        member = self._member
        if member is None:
            return self._commit_without_group(requested, asynchronous=asynchronous)
        with self._lock_to_commit(requested):
            if requested is None:
                requested = self._uncommitted_offsets()
            self._require_owned(requested)
            positions = self._partitions.build_positions(requested, self._read_handler_time())
            self._partitions.begin_commit(positions, waits=not asynchronous)
            epoch = self._partitions.membership_epoch  # of the check: a later one owns them at other offsets
            if asynchronous:
                self._commit_async(member, positions, epoch)
        if asynchronous:
            return None
        self._commit_sync(member, positions, epoch)
        return requested

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[RawPartition] | None = None
    ) -> None:
        """Store offsets for the next commit; needs enable.auto.offset.store=false."""
        self._check_not_closed()
        if self._settings.auto_offset_store:
            hint = "store_offsets() needs enable.auto.offset.store=false"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, hint))  # noqa: SLF001 - its public name
        requested = offsets_to_commit(message, offsets)
        if requested is None:
            raise ValueError("expected either message or offsets")
        with self._partitions.lock:  # a revocation on another thread comes before or after
            self._require_owned(requested)
            self._partitions.store_offsets(requested)

    def trace_processing(self, messages: Message | Sequence[Message]) -> AbstractContextManager[None]:
        """Return a block whose span processes these messages; it does nothing without `trimtab.telemetry`."""
        return self._spans.trace_processing([messages] if isinstance(messages, Message) else messages)

    # -- inside -----------------------------------------------------------------------------------

    @contextmanager
    def _lock_to_commit(self, requested: list[RawPartition] | None) -> Generator[None]:
        # Positions are the data plane's, and a signal handler inside `consume` waits for the second lock.
        if requested is None and not self._access.acquire(COMMIT_TIMEOUT_S):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - its public name
        try:
            with self._partitions.lock:
                yield
        finally:
            if requested is None:
                self._access.release()

    def _commit_async(
        self, member: Membership, positions: dict[TopicPartition, CommitPosition], epoch: int
    ) -> None:
        if positions:
            self._spans.begin_commit(positions)
            member.commit_async(positions, epoch, self._partitions.owns)
        else:
            member.inbox.append(CommitCompleted({}, KafkaException(_NOTHING_TO_COMMIT)))

    def _commit_sync(
        self, member: Membership, positions: dict[TopicPartition, CommitPosition], epoch: int
    ) -> None:
        if not positions:
            raise KafkaException(_NOTHING_TO_COMMIT)
        try:
            with self._spans.trace_commit(positions):
                member.commit(positions, epoch, COMMIT_TIMEOUT_S, still_owned=self._partitions.owns)
        except list_client_errors() as error:
            raise KafkaException(to_confluent_error(error)) from error
        self._partitions.on_committed(positions)

    def _commit_without_group(
        self, requested: list[RawPartition] | None, *, asynchronous: bool
    ) -> list[RawPartition] | None:
        if requested is None:
            requested = self._uncommitted_offsets()
        commit: Any = self._data_plane.commit  # its overloads take no variable
        answer = commit(offsets=requested, asynchronous=asynchronous)
        self._partitions.begin_commit(self._partitions.build_positions(requested), waits=False)
        return None if asynchronous else list(answer)

    def _commit_if_due(self) -> None:
        now = self._clock.monotonic()
        if not self._settings.auto_commit or now < self._next_auto_commit_at:
            return
        self._next_auto_commit_at = now + self._settings.auto_commit_interval
        if offsets := self._uncommitted_offsets():
            self.commit(offsets=offsets)

    def _release_partitions(
        self, partitions: frozenset[TopicPartition], offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Forget the partitions and commit the last time, these offsets if commits are automatic."""
        with self._partitions.lock:
            known = {} if self._partitions.transactional else dict(self._partitions.committed_offsets)
            committed = {p: o for p, o in known.items() if p in partitions}
            # on_revoke may have stored later ones, as when it waits for workers.
            stored = {p: o for p, o in self._partitions.stored_offsets.items() if p in partitions}
            self._partitions.remove_partitions(partitions)
        # Committed offsets, too: their metadata must carry the release time.
        self._commit_released({**committed, **({**offsets, **stored} if self._settings.auto_commit else {})})

    def _commit_released(self, offsets: Mapping[TopicPartition, int]) -> None:
        if not offsets or self._member is None:
            return
        last = build_final_commit(offsets, self._clock.wall(), self._member.release_token)
        began = self._clock.monotonic()
        try:
            with self._spans.trace_commit(last):
                self._member.commit(
                    last,
                    self._partitions.membership_epoch,
                    LAST_COMMIT_TIMEOUT_S,
                    still_owned=lambda _: self._clock.monotonic() - began < LAST_COMMIT_TIMEOUT_S,
                )
            self._member.confirm_release(last, self._partitions.membership_epoch, began)
        except list_client_errors() as error:  # the next owner repeats records; none is lost
            log.warning("the last commit of %d partitions failed: %s", len(offsets), error)

    def _remove_unsubscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit, stop and forget the partitions of an assign() without a subscription."""
        removed = self._partitions.owned.intersection(partitions)
        if not removed:
            return
        offsets = {p: o for p, o in self._committable_offsets().items() if p in removed}
        try:
            if offsets and self._settings.auto_commit:
                self._data_plane.commit(offsets=_with_offsets(offsets), asynchronous=False)
        except KafkaException as error:
            log.warning("the last commit of %d partitions failed: %s", len(offsets), error)
        with self._access, self._partitions.lock:
            stop_fetching(self._data_plane, removed)
            self._partitions.remove_partitions(removed)

    def _on_committed(
        self, positions: Mapping[TopicPartition, CommitPosition], error: Exception | None
    ) -> None:
        if error is None:
            self._partitions.on_committed(positions)
        elif positions:
            self._partitions.on_refused(positions)
            retriable = getattr(error, "retriable", False)
            transient = retriable or getattr(error, "errno", None) == KafkaError.REBALANCE_IN_PROGRESS
            # The next automatic commit repeats it, and warns if the error persists.
            level = logging.DEBUG if transient and self._settings.auto_commit else logging.WARNING
            log.log(level, "commit of %d partitions failed: %s", len(positions), error)
        if self._settings.on_commit is not None:
            raw_error = None if error is None else to_confluent_error(error)
            self._settings.on_commit(raw_error, to_raw_offsets(positions))

    def _read_handler_time(self) -> dict[str, float]:
        return self._handler_time.read_facts()

    def _require_owned(self, requested: Sequence[RawPartition]) -> None:
        # A commit of a partition that another member owns would rewind that member.
        requested = [p for p in requested if has_offset(p)]
        if foreign := sorted({to_partition(p) for p in requested} - self._partitions.owned):
            names = ", ".join(map(str, foreign))
            raise KafkaException(KafkaError(KafkaError._ASSIGNMENT_LOST, f"not owned: {names}"))  # noqa: SLF001

    def _uncommitted_offsets(self) -> list[RawPartition]:
        committed = self._partitions.committed_offsets
        changed = {p: o for p, o in self._committable_offsets().items() if committed.get(p) != o}
        positions = self._data_plane.position([RawPartition(*p) for p in changed])
        epochs: dict[TopicPartition, Any] = {to_partition(p): p.leader_epoch for p in positions}
        given = {p: -1 if epoch is None else epoch for p, epoch in epochs.items()}
        return [RawPartition(*p, o, leader_epoch=given.get(p, -1)) for p, o in changed.items()]

    def _committable_offsets(self) -> dict[TopicPartition, int]:
        if not self._settings.auto_offset_store:
            return dict(self._partitions.stored_offsets)
        positions = self._data_plane.position([RawPartition(*p) for p in self._partitions.owned])
        offsets = {to_partition(p): p.offset for p in positions if has_offset(p)}
        return {**self._partitions.last_positions, **offsets}


def _with_offsets(offsets: Mapping[TopicPartition, int]) -> list[RawPartition]:
    return [RawPartition(*partition, offset) for partition, offset in offsets.items()]
