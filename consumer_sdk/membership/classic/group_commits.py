"""Commits with the generation of a group member, by private parts of kafka-python, as `coordinator`.

kafka-python's public commit takes the generation at the time of the request, whoever owns the partitions by
then. Here the owner is checked on the I/O thread, with nothing between the check and the request. The rules:

1. Commits of partitions that a round has not confirmed wait for its end, in order.
2. A commit that failed may yet take effect: until the generation ends, no release is confirmed.
3. After the end of the member every commit fails with UNKNOWN_MEMBER_ID.
"""

# ruff: noqa: SLF001 - the reason is the module's docstring

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from threading import Event
from typing import Any, Final

from kafka import errors
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition
from kafka.util import Timer  # pyright: ignore[reportAttributeAccessIssue] # stubs of v2

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.classic.coordinator import sleep_on_event_loop

log = logging.getLogger("trimtab.consumer_sdk")

COORDINATOR_LOOKUP_TIMEOUT_MS: Final = 5_000  # of a commit that has to find the group's coordinator first
JOIN_TIMEOUT_MS: Final = 1_000  # of a commit during a join: another member may delay it, and reading goes on
CONFIRMATION_POLL_INTERVAL_S: Final = 0.005


def commit_offsets(
    consumer: Any,
    offsets: Mapping[TopicPartition, CommitPosition],
    timeout: float,
    still_owned: Callable[[], bool],
) -> None:
    """Commit with the member's generation and wait up to `timeout` seconds; from any thread.

    `still_owned` runs on the I/O thread, just before the request. Raises kafka-python's errors;
    UnknownMemberIdError if the member has ended, perhaps between two attempts.
    """
    timer, join_timer = Timer(timeout * 1000), Timer(min(timeout * 1000, JOIN_TIMEOUT_MS))
    pause = Event()
    while True:
        try:
            with _translate_closed_client(consumer):
                answer = consumer._manager.call_soon(_send_commit, consumer, offsets, still_owned)
                consumer._net.run(consumer._manager.wait_for, answer, timer.timeout_ms)
        except errors.KafkaError as error:
            is_joining = isinstance(error, errors.RebalanceInProgressError)
            backoff_ms = consumer._coordinator.config["retry_backoff_ms"]
            left_ms = (join_timer if is_joining else timer).timeout_ms
            if not (error.retriable or is_joining) or left_ms <= backoff_ms:
                raise
            pause.wait(backoff_ms / 1000)
        else:
            return


async def confirm_release(
    consumer: Any, offsets: Mapping[TopicPartition, CommitPosition], still_member: Callable[[], bool]
) -> bool:
    """Commit once, if no commit of this generation may yet take effect; return whether it was answered."""
    try:
        return await _confirm_release(consumer, offsets, still_member)
    except errors.KafkaError as error:
        log.debug("the confirmation of %d released partitions failed: %s", len(offsets), error)
        return False


async def _confirm_release(consumer: Any, offsets: Any, still_member: Callable[[], bool]) -> bool:
    # An answered commit takes effect once: kafka-python writes a request to one connection, and fails it
    # when that one breaks. Only `commit_offsets` repeats one, after an error: that puts it in doubt.
    group = consumer._coordinator
    if group.open_commits or group.doubtful_generation == group._generation.generation_id:
        return False
    await _send_commit(consumer, offsets, still_member)
    return True


def commit_offsets_async(
    consumer: Any,
    offsets: Mapping[TopicPartition, CommitPosition],
    still_owned: Callable[[], bool],
    on_done: Callable[[Exception | None], None],
) -> None:
    """Commit with the member's generation; `on_done` runs on the I/O thread, here if the member has ended."""
    try:
        with _translate_closed_client(consumer):
            future = consumer._manager.call_soon(_send_commit, consumer, offsets, still_owned)
    except errors.UnknownMemberIdError as error:
        on_done(error)
        return
    future.add_callback(lambda _response: on_done(None))  # pyright: ignore[reportUnknownLambdaType]
    future.add_errback(on_done)


@contextmanager
def _translate_closed_client(consumer: Any) -> Generator[None]:
    # kafka-python raises a RuntimeError on a closed client, as that of a member that another one has fenced.
    try:
        yield
    except RuntimeError as error:
        if not consumer._net._closed:
            raise
        raise errors.UnknownMemberIdError("this member has ended") from error


async def _send_commit(
    consumer: Any, offsets: Mapping[TopicPartition, CommitPosition], still_owned: Callable[[], bool]
) -> None:
    coordinator = consumer._coordinator
    coordinator.open_commits += 1
    try:
        await _send_owned(consumer, offsets, still_owned)
    except BaseException:
        coordinator.doubtful_generation = coordinator._generation.generation_id
        raise
    finally:
        coordinator.open_commits -= 1


async def _send_owned(
    consumer: Any, offsets: Mapping[TopicPartition, CommitPosition], still_owned: Callable[[], bool]
) -> None:
    coordinator = consumer._coordinator
    await coordinator.ensure_coordinator_ready_async(timeout_ms=COORDINATOR_LOOKUP_TIMEOUT_MS)
    await _wait_for_confirmation(consumer, offsets)
    if not still_owned():
        raise errors.IllegalGenerationError("the partitions were lost, or their release took too long")
    # Nothing else runs on this thread before the request is made, so that the request carries the
    # generation that `still_owned` checked.
    try:
        await coordinator._send_offset_commit_request(
            {KafkaPartition(*p): OffsetAndMetadata(at.offset, at.metadata, -1) for p, at in offsets.items()}
        )
    except errors.KafkaError:
        coordinator._membership_listener.on_rejoin_needed()  # which kafka-python may have requested
        raise


async def _wait_for_confirmation(consumer: Any, partitions: Iterable[TopicPartition]) -> None:
    # In order: a commit that passes another one would be rewound by it.
    waiting = consumer._coordinator.waiting_commits
    is_unconfirmed = consumer._coordinator._membership_listener.is_unconfirmed
    if not waiting and not is_unconfirmed(partitions):
        return
    this = object()
    waiting.append(this)
    try:
        while waiting[0] is not this or is_unconfirmed(partitions):
            await sleep_on_event_loop(consumer, CONFIRMATION_POLL_INTERVAL_S)
    finally:
        waiting.remove(this)
