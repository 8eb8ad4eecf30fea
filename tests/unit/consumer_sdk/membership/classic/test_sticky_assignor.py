"""Claims of Trimtab's members in groups that assign by `cooperative-sticky`."""

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from trimtab.assignor.clients.kafka_python import ConsumerSubscription, TrimtabAssignor
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.membership.classic.sticky_assignor import OwnershipStickyAssignor


def test_a_member_claims_what_another_assignor_has_given_it() -> None:
    """Else the first leader of `cooperative-sticky` takes partitions from a consumer that reads them."""
    trimtab = TrimtabAssignor()
    assignor = OwnershipStickyAssignor(trimtab)
    owned = frozenset({TopicPartition("t", 1), TopicPartition("t", 4)})
    trimtab.read_subscription = lambda: ConsumerSubscription(owned, 7, frozenset({"t"}))
    claimed = CooperativeStickyAssignor.parse_member_metadata(assignor.metadata(["t"]))
    assert sorted(map(tuple, claimed.partitions)) == [("t", 1), ("t", 4)]


def test_a_member_does_not_claim_what_it_has_lost() -> None:
    """The partitions of a lost membership are another consumer's."""
    trimtab = TrimtabAssignor()
    assignor = OwnershipStickyAssignor(trimtab)
    assignor.member_assignment = [TopicPartition("t", 1)]  # of its own last round
    trimtab.read_subscription = ConsumerSubscription
    assert assignor.metadata(["t"]).owned_partitions == []
