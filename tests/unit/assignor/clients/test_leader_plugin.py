"""The plugins' shared leader code: the partition index of a round, hostile members, and its log."""

import logging
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from support.hostile import UNREADABLE_USER_DATA, encode_subscription
from support.named_rounds import assignments
from trimtab.assignor.clients import kafka_python
from trimtab.assignor.clients.aiokafka import EagerTrimtabAssignor
from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.clients.leader_plugin import (
    MAX_LOGGED_MOVES,
    index_partitions,
    lead_group,
    log_round,
    parse_own_policy,
)
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import OwnedPartitions
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription, decode_assignment
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound
from trimtab.common.errors import SettingError

COUNT = 50
WRITE_RATES = {TopicPartition("t", n): float(n + 1) for n in range(COUNT)}
STICKY = PlacementPolicy(heuristic="sticky")


def led(policy: PlacementPolicy = STICKY, data: bytes | None = None) -> RebalanceRound:
    members = {m: MemberSubscription(("t",), data) for m in ("a", "b")}
    return lead_group(members, {"t": range(COUNT)}, {"t"}, LeaderView(Load(WRITE_RATES)), policy)


def test_a_large_decision_logs_its_largest_moves(caplog: pytest.LogCaptureFixture) -> None:
    """The largest are logged one by one with reasons, the rest as a count and their load."""
    with caplog.at_level(logging.INFO, "trimtab.assignor"):
        log_round(led())
    lines = [r.getMessage() for r in caplog.records]
    assert lines[0].endswith(f": {COUNT} moves, R 0.00")
    assert len(lines) == MAX_LOGGED_MOVES + 2
    assert lines[1].startswith("t-49 (50 B/s): unassigned → b: no member owned it; ")
    rest = sum(sorted(WRITE_RATES.values())[: COUNT - MAX_LOGGED_MOVES])
    assert lines[-1] == f"and {COUNT - MAX_LOGGED_MOVES} smaller moves, {rest:.0f} B/s together"


def test_all_moves_are_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG no move is left out."""
    with caplog.at_level(logging.DEBUG, "trimtab.assignor"):
        log_round(led())
    assert len(caplog.records) == COUNT + 1


def test_a_completed_decision_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A round that completes an earlier decision logs nothing."""
    done = replace(led(), placement_decision=None)
    with caplog.at_level(logging.DEBUG, "trimtab.assignor"):
        log_round(done)
    assert not caplog.records


def test_a_topic_missing_in_the_metadata_stays_with_its_owners() -> None:
    """Its owned partitions are kept, unless the leader subscribes to it: then it is deleted."""
    owned = OwnedPartitions.from_grouped([("new", [4, 2]), ("old", [0])])
    members = {"a": MemberSubscription(("new", "old"), owned=owned), "b": MemberSubscription(("new",))}
    known = {"new": None, "old": None}
    partition_index = index_partitions(members, known, {"old"})
    assert partition_index.list_partitions() == (TopicPartition("new", 2), TopicPartition("new", 4))
    assert np.array_equal(partition_index.topic, [0, 0])


@pytest.mark.parametrize("data", [b"\xff", b'{"v": 1, "capacity": "x"}'])
def test_malformed_user_data_is_ignored(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The member gets partitions like any other, and the log names it."""
    outcome = led(data=data)
    assert sorted(map(len, (s.assigned for s in assignments(outcome).values()))) == [25, 25]
    assert "member a: " in caplog.text


@pytest.mark.parametrize("create", [TrimtabAssignor, EagerTrimtabAssignor.with_settings])
@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([["a"]], "two topics or more"),
        ([["a", "b"], ["b", "c"]], "'b' is there twice"),
        ([["a", 1]], "no topic names"),
        (3, ""),
    ],
)
def test_co_partitioned_topics_are_checked_as_the_consumers_are(create: Any, groups: Any, text: str) -> None:
    """A group that could have no effect is an error of its name."""
    with pytest.raises(SettingError, match=f"^co_partitioned: .*{text}"):
        create("mwf", co_partitioned=groups)
    for given in ([["a", "b"]], "a,b", [("a", "b")], iter([{"a": 0, "b": 0}])):
        assert create("mwf", co_partitioned=given)._policy.co_partitioned == (("a", "b"),)


@pytest.mark.parametrize("capacity", ["0 B/s", 1e-9, 1e30])
def test_an_unusable_capacity_is_refused_at_once(capacity: str | float) -> None:
    """Not by the leader, which would ignore all user data of the member."""
    with pytest.raises(SettingError, match="must be above 0"):
        parse_own_policy("steady", capacity)


def test_a_topic_missing_in_the_metadata_has_no_negative_partitions() -> None:
    """Claims are a member's words."""
    owned = OwnedPartitions.from_grouped([("new", [4, -1, -(2**31)])])
    index = index_partitions({"a": MemberSubscription(("new",), owned=owned)}, {"new": None}, ())
    assert index.list_partitions() == (TopicPartition("new", 4),)


def raise_error(*_: object) -> Any:
    raise ZeroDivisionError


def test_an_applications_functions_cannot_end_the_leader(caplog: pytest.LogCaptureFixture) -> None:
    """The view and the report may fail: the round is led without load and plan, the errors are logged."""
    assignor = TrimtabAssignor(view=raise_error, on_round=raise_error)
    cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1})
    sent = assignor.assign_decoded(
        cluster, {"a": MemberSubscription(("t",)), "b": MemberSubscription(("t",))}
    )
    assert sorted(len(decode_assignment(data).owned.number) for data in sent.values()) == [1, 1]
    logged = [r.getMessage() for r in caplog.records if r.exc_info]
    assert logged[0] == "the leader's view failed; deciding without load and plan"
    assert re.fullmatch("reporting decision [0-9a-f]+ failed", logged[1])


@pytest.mark.parametrize("data", UNREADABLE_USER_DATA.values(), ids=UNREADABLE_USER_DATA)
def test_the_plugins_lead_beside_unreadable_user_data(data: bytes) -> None:
    """Both plugins count its member as one that says nothing, and give it partitions as any other."""
    cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1})
    theirs = [encode_subscription(None, ("t",)), encode_subscription(data, ("t",))]
    members = [
        SimpleNamespace(member_id=str(n), metadata=ConsumerProtocolSubscription.decode(raw))
        for n, raw in enumerate(theirs)
    ]
    eager = {str(n): ConsumerProtocolMemberMetadata(0, ["t"], sent) for n, sent in enumerate((b"", data))}
    for sent in (TrimtabAssignor().assign(cluster, members), EagerTrimtabAssignor.assign(cluster, eager)):  # type: ignore[arg-type]
        assert [len(decode_assignment(one).owned.number) for one in sent.values()] == [1, 1]


def test_the_plugins_keep_co_partitioned_topics_together() -> None:
    """Both take them as lists of lists; without them the busy partitions would be apart."""
    cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1})
    busy = {TopicPartition("a", 0): 9.0, TopicPartition("b", 1): 9.0}
    rates = {TopicPartition(t, n): busy.get(TopicPartition(t, n), 1.0) for t in "ab" for n in range(2)}
    given: dict[str, Any] = {"co_partitioned": [["a", "b"]], "view": lambda: LeaderView(Load(rates))}
    subscription = MemberSubscription(("a", "b"))
    cooperative = TrimtabAssignor("mwf", **given).assign_decoded(
        cluster, {"0": subscription, "1": subscription}
    )
    metadata = ConsumerProtocolMemberMetadata(0, ["a", "b"], b"")
    eager = EagerTrimtabAssignor.with_settings("mwf", **given)
    together = eager.assign(cluster, {"0": metadata, "1": metadata})  # type: ignore[arg-type]
    for sent in (cooperative, together):
        owned = [decode_assignment(one).owned for one in sent.values()]
        numbers = [[o.numbers_of_topic(t).tolist() for t in "ab"] for o in owned]
        assert sorted(numbers) == [[[0], [0]], [[1], [1]]]


def test_an_owned_topic_without_partitions_is_no_claim() -> None:
    """A missing array in a subscription is None in kafka-python."""
    entry = SimpleNamespace(topic="t", partitions=None)
    metadata = SimpleNamespace(
        topics=["t"], user_data=None, owned_partitions=[entry], generation_id=1, rack_id=None
    )
    assert kafka_python._convert_subscription(metadata).owned.list_partitions() == []


@pytest.mark.parametrize("data", [UNREADABLE_USER_DATA["deep"], UNREADABLE_USER_DATA["promised Infinity"]])
def test_unreadable_data_of_the_leader_does_not_end_a_member(data: bytes) -> None:
    """Its assignment counts; promises and decision are those of a leader that says nothing."""
    assignor = TrimtabAssignor()
    partition = SimpleNamespace(topic="t", partition=0)
    assignment = SimpleNamespace(partitions=lambda: [partition], user_data=data)
    assignor.on_assignment(assignment, 3)
    assert assignor._last_assigned.owned == {TopicPartition("t", 0)}
    assert not assignor.fault
    eager = EagerTrimtabAssignor.with_settings()
    eager.on_assignment(assignment)  # type: ignore[arg-type]
    assert eager._data.owned == (("t", (0,)),)
