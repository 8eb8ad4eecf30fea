"""Kafka's assignor `cooperative-sticky`, in which a group meets that changes its assignor or its protocol."""

from collections.abc import Iterable
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from trimtab.assignor.clients.kafka_python import ConsumerSubscription, TrimtabAssignor


class OwnershipStickyAssignor(CooperativeStickyAssignor):  # type: ignore[misc] # kafka-python has no types
    """`cooperative-sticky` whose members claim the partitions that they own.

    kafka-python's members claim what its own last round has given them. That is nothing in the first
    round after one of another assignor, whose leader then moves partitions at once, from consumers that
    still read them; and after a lost membership those that were lost. `assignor` is the member's other one.
    """

    def __init__(self, assignor: TrimtabAssignor) -> None:
        super().__init__()
        self._assignor = assignor

    def metadata(self, topics: Iterable[str]) -> Any:
        """Return this member's subscription (version 1, KIP-429); called before each JoinGroup."""
        subscription = self._assignor.read_subscription() or ConsumerSubscription()
        self.member_assignment = sorted(subscription.owned)
        return super().metadata(topics)
