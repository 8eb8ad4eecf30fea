"""The plugins' shared leader code: the partition index of a round, and its log."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from named_rounds import assignments

from trimtab.assignor.clients.leader_plugin import MAX_LOGGED_MOVES, index_partitions, lead_group, log_round
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.partition_index import OwnedPartitions
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound

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
    assert lines[1].startswith("t-49 (50 B/s): unassigned → b: it had no reader; ")
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
    assert partition_index.list_partitions() == [TopicPartition("new", 2), TopicPartition("new", 4)]
    assert np.array_equal(partition_index.topic, [0, 0])


@pytest.mark.parametrize("data", [b"\xff", b'{"v": 1, "capacity": "x"}'])
def test_malformed_user_data_is_ignored(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The member gets partitions like any other, and the log names it."""
    outcome = led(data=data)
    assert sorted(map(len, (s.assigned for s in assignments(outcome).values()))) == [25, 25]
    assert "member a: " in caplog.text
