"""What a leader does around a decision: which partitions there are, and what the log says."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from trimtab.assignor.clients.leader_plugin import (
    MAX_LOGGED_MOVES,
    index_partitions,
    lead_group,
    log_round,
)
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.partition_index import OwnedPartitions
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound

COUNT = 50
SPEEDS = {TopicPartition("t", n): float(n + 1) for n in range(COUNT)}
STICKY = PlacementPolicy(heuristic="sticky")


def led(policy: PlacementPolicy = STICKY, data: bytes | None = None) -> RebalanceRound:
    members = {m: MemberSubscription(("t",), data) for m in ("a", "b")}
    return lead_group(members, {"t": range(COUNT)}, {"t"}, LeaderView(Load(SPEEDS)), policy)


def test_a_large_decision_logs_its_largest_moves(caplog: pytest.LogCaptureFixture) -> None:
    """The largest come one by one with their reasons, the rest as a number and their load."""
    with caplog.at_level(logging.INFO, "trimtab.assignor"):
        log_round(led())
    lines = [r.getMessage() for r in caplog.records]
    assert lines[0].endswith(f": {COUNT} moves, R 0.00")
    assert len(lines) == MAX_LOGGED_MOVES + 2
    assert lines[1].startswith("t-49 (50 B/s): unassigned → b: it had no reader; ")
    rest = sum(sorted(SPEEDS.values())[: COUNT - MAX_LOGGED_MOVES])
    assert lines[-1] == f"and {COUNT - MAX_LOGGED_MOVES} smaller moves, {rest:.0f} B/s together"


def test_all_moves_are_logged_to_who_asks(caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG no move is left out."""
    with caplog.at_level(logging.DEBUG, "trimtab.assignor"):
        log_round(led())
    assert len(caplog.records) == COUNT + 1


def test_a_completed_decision_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A round that only completes says nothing: nothing was decided."""
    done = replace(led(), placement_decision=None)
    with caplog.at_level(logging.DEBUG, "trimtab.assignor"):
        log_round(done)
    assert not caplog.records


def test_a_topic_that_is_not_known_yet_stays_with_its_owners() -> None:
    """What members own of it is kept, unless the leader reads the topic: then it is gone."""
    owned = OwnedPartitions.from_grouped([("new", [4, 2]), ("old", [0])])
    members = {
        "a": MemberSubscription(("new", "old"), owned=owned),
        "b": MemberSubscription(("new",)),
    }
    known = {"new": None, "old": None}
    universe = index_partitions(members, known, {"old"})
    assert universe.list_partitions() == [TopicPartition("new", 2), TopicPartition("new", 4)]
    assert np.array_equal(universe.topic, [0, 0])


@pytest.mark.parametrize("data", [b"\xff", b'{"v": 1, "capacity": "x"}'])
def test_a_member_with_strange_user_data_says_nothing(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read from like any other, and the log names it."""
    outcome = led(data=data)
    assert sorted(map(len, (s.assigned for s in outcome.member_assignments.values()))) == [25, 25]
    assert "member a: " in caplog.text
