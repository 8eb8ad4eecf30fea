"""Kafka's assignor `cooperative-sticky`, in which a group meets that changes its assignor or its protocol."""

from collections.abc import Iterable
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from trimtab.assignor.clients.kafka_python import ConsumerSubscription
from trimtab.consumer_sdk.membership.classic.timed_assignor import TimedAssignor


class OwnershipStickyAssignor(CooperativeStickyAssignor):  # type: ignore[misc] # kafka-python has no types
    """`cooperative-sticky` whose members claim the partitions that they own.

    kafka-python's members claim what its own last round has given them. That is nothing in the first
    round after one of another assignor, whose leader then moves partitions at once, from consumers that
    still read them; and after a lost membership those that were lost. `assignor` is the member's other one.
    """

    def __init__(self, assignor: TimedAssignor) -> None:
        super().__init__()
        self._assignor = assignor

    def metadata(self, topics: Iterable[str]) -> Any:
        """Return this member's subscription (version 1, KIP-429); called before each JoinGroup."""
        subscription = self._assignor.read_subscription() or ConsumerSubscription()
        self.member_assignment = sorted(subscription.owned)
        return super().metadata(topics)

    def on_assignment(self, assignment: Any, generation: int) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] # stubs of v2
        """End the promise of the last round that Trimtab led; called on each member after each round."""
        self._assignor.forget_promise()
        super().on_assignment(assignment, generation)  # pyright: ignore[reportCallIssue] # as above
