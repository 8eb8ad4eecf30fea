"""The listener of kafka-python's rebalance callbacks: passes them to the application's thread."""

from typing import TYPE_CHECKING, Any, Final

from kafka.consumer.subscription_state import (
    AsyncConsumerRebalanceListener,  # pyright: ignore[reportAttributeAccessIssue] # stubs of v2
)

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.membership_events import (
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from trimtab.consumer_sdk.membership.classic import coordinator

if TYPE_CHECKING:
    from trimtab.consumer_sdk.membership.classic.member import GroupMember

RELEASE_POLL_INTERVAL_S: Final = 0.002  # part of every handover


class RebalanceListener(AsyncConsumerRebalanceListener):  # type: ignore[misc] # kafka-python has no types
    """Puts rebalance callbacks into the inbox; runs on kafka-python's I/O thread."""

    def __init__(self, member: "GroupMember") -> None:
        self._member = member

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Report partitions that the member owns from now on."""
        self._member.inbox.append(PartitionsAssigned(_to_partitions(assigned), self._member.membership_epoch))

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Wait until partitions have been released, and stay in the round if that is confirmed."""
        event = PartitionsRevoked(_to_partitions(revoked))
        if not event.partitions:
            return
        self._member.inbox.append(event)  # served by poll(), consume() or close()
        # A coroutine instead of a blocking wait: heartbeats continue on this thread (rule 2).
        while not event.released.is_set():
            await coordinator.sleep_on_event_loop(self._member.client, RELEASE_POLL_INTERVAL_S)
        if await self._member.send_confirmation(event.partitions):
            coordinator.skip_rejoin(self._member.client)

    async def on_partitions_lost(self, lost: Any) -> None:
        """Report partitions of a membership that has ended."""
        # Before the event: commits in flight compare it and are refused from now on.
        self._member.membership_epoch += 1
        self._member.inbox.append(PartitionsLost(_to_partitions(lost)))


def _to_partitions(partitions: Any) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(tp.topic, tp.partition) for tp in partitions)
