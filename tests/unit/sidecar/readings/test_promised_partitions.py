"""Which partitions the sidecar takes for handed over already."""

from dataclasses import replace
from math import inf

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import SubscriptionDecoder
from trimtab.assignor.rebalance.user_data import AssignmentUserData
from trimtab.consumer_sdk.client.commit_metadata import (
    encode_confirmation,
    encode_handover,
    encode_release,
    format_round_token,
)
from trimtab.sidecar.kafka.broker_client import parse_member
from trimtab.sidecar.model.observation import ObservedMember
from trimtab.sidecar.readings.promised_partitions import MAX_RELEASE_WAIT_S, PromiseTracker

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
NEXT = ObservedMember(
    "2", "next", frozenset({P, Q}), promised_partitions=frozenset({P}), decision_fingerprint="abc"
)
BEFORE = replace(NEXT, owned_partitions=frozenset({Q}), promised_partitions=frozenset())
TOKEN = format_round_token(7, "abc")


def follow(*commits: str, every: float = 5.0) -> list[bool]:
    """Return whether P is unreleased in each observation; the first one is before the round."""
    tracker = PromiseTracker()
    assert tracker.list_unreleased([BEFORE], {P: commits[0]}, 1000.0, 0.0) == frozenset()
    times = [every * (number + 1) for number in range(len(commits))]
    return [
        bool(tracker.list_unreleased([NEXT], {P: metadata}, 1000.0 + at, at))
        for at, metadata in zip(times, commits, strict=True)
    ]


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        encode_handover(990.0, 0.1),
        encode_release(990.0, format_round_token(5, "older")),
        "of the application",
    ],
)
def test_a_promised_partition_is_unreleased_while_its_former_owner_commits(metadata: str) -> None:
    """For as long as a flush takes at most."""
    assert follow(metadata, metadata) == [True, True]
    assert follow(metadata, metadata, every=MAX_RELEASE_WAIT_S) == [True, False]


@pytest.mark.parametrize(
    "metadata",
    [
        encode_release(1002.0, TOKEN),
        encode_confirmation(encode_release(1002.0, TOKEN)),
        encode_handover(1002.0, 0.2),
    ],
)
def test_a_release_or_a_commit_of_the_next_owner_ends_the_handover(metadata: str) -> None:
    """The last commit of the round, or the time of the handover in the next owner's."""
    assert follow("", metadata) == [True, False]


def test_without_an_observation_before_the_round_any_handover_ends_it() -> None:
    """A sidecar that starts holds for what no commit tells of."""
    tracker = PromiseTracker()
    assert not tracker.list_unreleased([NEXT], {P: encode_handover(1.0, 0.2)}, 1000.0, 0.0)
    assert tracker.list_unreleased([NEXT], {}, 1000.0, 0.0) == {P}
    assert not tracker.list_unreleased([NEXT], {}, 1000.0, inf)


@pytest.mark.parametrize("is_only_round", [True, False])
def test_an_only_round_tells_what_it_lists_early(*, is_only_round: bool) -> None:
    """In a first round of two, what is promised is not listed."""
    data = AssignmentUserData("abc", (("t", (0,)),), is_only_round=is_only_round)
    entry = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[0, 1])
    sent = ConsumerProtocolAssignment(
        version=0, assigned_partitions=[entry], user_data=data.encode()
    ).encode()
    member = parse_member("2", "next", "/1.2.3.4", None, sent, SubscriptionDecoder())
    assert member.owned_partitions == {P, Q}
    assert member.promised_partitions == ({P} if is_only_round else frozenset())
    assert member.decision_fingerprint == "abc"
