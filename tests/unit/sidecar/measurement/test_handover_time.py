"""Handovers and moves: each counts once, whatever the metadata of commits contains."""

import json

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.measurement.handover_time import HandoverTracker, PartitionMove
from trimtab.sidecar.model.observation import ObservedMember

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def note(seconds: float, at: float) -> str:
    return json.dumps({"handover": seconds, "at": at})


def test_a_handover_counts_once() -> None:
    """A handover is counted once, the next one again, and those before the start never."""
    tracker = HandoverTracker(since=100.0)
    fresh, tracker = tracker.collect_handovers({A: note(0.5, 101), B: note(0.7, 99)})
    assert fresh == {A: 0.5}
    fresh, tracker = tracker.collect_handovers({A: note(0.5, 101), B: note(0.2, 103)})
    assert fresh == {B: 0.2}
    assert tracker.collect_handovers({A: note(0.9, 110)})[0] == {A: 0.9}


HOSTILE = ["[" * 3000, note(10**400, 1), note(float("nan"), 1), note(-1, 1), note(1, float("inf"))]


@pytest.mark.parametrize("text", ["", "x", "{}", '{"released": 5}', "[1]", '{"handover": null}', *HOSTILE])
def test_other_commit_metadata_is_ignored(text: str) -> None:
    """Metadata of other clients or releases is no handover and no error."""
    assert HandoverTracker(0.0).collect_handovers({A: text})[0] == {}


def test_moves_are_changes_of_the_owner() -> None:
    """A partition that returns to its last owner did not move, nor did a new one."""
    tracker = HandoverTracker(0.0)
    moved, tracker = tracker.collect_moves([ObservedMember("1", "a", frozenset({A, B}))])
    assert moved == ()
    moved, tracker = tracker.collect_moves([ObservedMember("1", "a", frozenset({A}))])
    assert moved == ()
    both = [ObservedMember("1", "a", frozenset({B})), ObservedMember("2", "b", frozenset({A}))]
    assert tracker.collect_moves(both)[0] == (PartitionMove(A, "a", "b"),)
