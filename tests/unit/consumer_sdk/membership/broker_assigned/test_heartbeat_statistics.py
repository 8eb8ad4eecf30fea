"""Answered heartbeats are proved by librdkafka's statistics; nothing else renews a lease."""

import json
from math import inf
from typing import Any

import pytest

from trimtab.consumer_sdk.membership.broker_assigned.heartbeat_statistics import (
    CoordinatorSample,
    HeartbeatProof,
    parse_statistics,
)


def sample(at: float, heartbeats: int, **changes: Any) -> CoordinatorSample:
    usual = CoordinatorSample(at, heartbeats, failures=0, is_idle=True, undisturbed=60.0, is_stable=True)
    return usual._replace(**changes)


def prove(*samples: CoordinatorSample) -> HeartbeatProof:
    proof = HeartbeatProof()
    for one in samples:
        proof.add_sample(one)
    return proof


def test_an_answered_heartbeat_is_dated_by_the_sample_before_it() -> None:
    """It was counted between the second and the third sample, so it was sent after the first."""
    proof = prove(*(sample(at, 5 + (at > 2)) for at in (1.0, 2.0, 3.0, 4.0)))
    assert (proof.last_contact, proof.last_stable_contact) == (1.0, 1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"is_idle": False},  # it may be the heartbeat that waits
        {"failures": 1},  # it may have been sent in vain
        {"undisturbed": 2.5},  # answers of another connection or coordinator
        {"more": 0},  # there was none
    ],
)
def test_any_doubt_renews_nothing(changes: dict[str, Any]) -> None:
    """An unanswered request, a failure, a reconnect or a missing heartbeat is no proof."""
    rest = dict(changes)
    more = rest.pop("more", 1)
    last = [sample(3.0, 5 + more), sample(4.0, 5 + more, **rest)]
    assert prove(sample(1.0, 5), sample(2.0, 5), *last).last_contact == -inf


def test_a_count_that_falls_back_is_no_heartbeat() -> None:
    """A commit between the reads of two counters makes the rest too small once, then right again."""
    assert prove(*(sample(t, n) for t, n in ((1, 5), (2, 5), (3, 4), (4, 5), (5, 5)))).last_contact == -inf


def test_heartbeats_of_a_rebalance_do_not_renew_the_second_lease() -> None:
    """While a revocation is due the coordinator answers heartbeats, and reassigns if it takes too long."""
    joining = (sample(float(t), t, is_stable=t < 5) for t in range(1, 9))
    proof = prove(*joining)
    assert proof.last_contact == 5
    assert proof.last_stable_contact == 1


def test_requests_without_a_type_are_heartbeats() -> None:
    """librdkafka's statistics leave heartbeats out of the requests by type."""
    broker: dict[str, Any] = {"state": "UP", "stateage": 3_000_000, "waitresp_cnt": 1, "outbuf_cnt": 0}
    broker |= {"tx": 17, "req": {"OffsetFetch": 2, "OffsetCommit": 5, "ApiVersion": 1}}
    broker |= {"req_timeouts": 1, "txerrs": 2, "disconnects": 3}
    group = {"state": "up", "stateage": 2_000, "join_state": "wait-unassign-call"}
    text = json.dumps({"age": 5_000_000, "cgrp": group, "brokers": {"GroupCoordinator": broker}})
    assert parse_statistics(text) == CoordinatorSample(
        at=5.0,
        heartbeats=9,
        failures=6,
        is_idle=False,
        undisturbed=2.0,
        is_stable=False,
        is_callback_due=True,
    )
    away = json.dumps(
        {"age": 1, "cgrp": {**group, "state": "wait-coord"}, "brokers": {"GroupCoordinator": broker}}
    )
    assert parse_statistics(away).undisturbed == 0.0  # type: ignore[union-attr]


def test_without_a_coordinator_there_is_no_sample() -> None:
    """A client that has not found its coordinator has sent no heartbeat."""
    assert parse_statistics(json.dumps({"age": 1, "brokers": {}})) is None
