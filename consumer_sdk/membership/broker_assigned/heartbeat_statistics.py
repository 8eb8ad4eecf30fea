"""Proof of answered heartbeats, from librdkafka's statistics: it tells no heartbeat's time.

The statistics count requests to the coordinator by type, except heartbeats, and those of all types
(`tx`): the rest are heartbeats. A statistic is sampled at intervals. The rules:

1. A heartbeat counted between the second and the third of four samples was sent after the first one:
   the counts of one sample are not read in one step.
2. It was answered if the fourth sample has no request without an answer, nothing was sent in vain since
   the first, and the coordinator was the same one and connected all the time.
3. Outside of a rebalance the same holds for heartbeats that ask for no revocation.
"""

import json
from collections import deque
from math import inf
from typing import Any, Final, NamedTuple

COORDINATOR: Final = "GroupCoordinator"  # librdkafka's name of the connection
SAMPLES: Final = 4  # rule 1
# join states in which librdkafka waits for no revocation
STABLE_JOIN_STATES: Final = frozenset({"init", "steady", "wait-assign-call"})
MICROSECONDS: Final = 1e-6
MILLISECONDS: Final = 1e-3


class CoordinatorSample(NamedTuple):
    """One statistic; times in seconds."""

    at: float  # since the client was created, or no later than the statistic in the caller's clock
    heartbeats: int
    failures: int  # requests that were sent in vain
    is_idle: bool  # no request waits for its answer
    undisturbed: float  # since when the coordinator is known and connected, in seconds
    is_stable: bool
    is_callback_due: bool = False  # librdkafka waits for a rebalance callback


class HeartbeatProof:
    """Times after which an answered heartbeat was sent, in the samples' clock; -inf before the first."""

    def __init__(self) -> None:
        self.last_contact = -inf
        self.last_stable_contact = -inf
        self.is_callback_due = False  # as of the last sample
        self._samples: deque[CoordinatorSample] = deque(maxlen=SAMPLES)

    def add_sample(self, sample: CoordinatorSample) -> None:
        """Add the next sample."""
        most = self._samples[-1].heartbeats if self._samples else 0
        self._samples.append(sample._replace(heartbeats=max(most, sample.heartbeats)))
        if len(self._samples) == SAMPLES and _has_answered_heartbeat(*self._samples):
            self.last_contact = self._samples[0].at
        self.is_callback_due = sample.is_callback_due
        if sample.is_stable:
            self.last_stable_contact = self.last_contact


def _has_answered_heartbeat(
    first: CoordinatorSample, second: CoordinatorSample, third: CoordinatorSample, fourth: CoordinatorSample
) -> bool:
    undisturbed = fourth.undisturbed >= fourth.at - first.at and fourth.failures == first.failures
    return undisturbed and fourth.is_idle and third.heartbeats > second.heartbeats


def parse_statistics(text: str) -> CoordinatorSample | None:
    """Return librdkafka's statistics (STATISTICS.md) as a sample, with the client's age as its time.

    None before a coordinator is known.
    """
    statistics: dict[str, Any] = json.loads(text)
    group, broker = statistics.get("cgrp"), statistics["brokers"].get(COORDINATOR)
    if group is None or broker is None:
        return None
    is_connected = group["state"] == "up" and broker["state"] == "UP"
    ages = (group["stateage"] * MILLISECONDS, broker["stateage"] * MICROSECONDS)
    return CoordinatorSample(
        at=statistics["age"] * MICROSECONDS,
        heartbeats=broker["tx"] - sum(broker["req"].values()),
        failures=broker["req_timeouts"] + broker["txerrs"] + broker["disconnects"],
        is_idle=broker["waitresp_cnt"] + broker["outbuf_cnt"] == 0,
        undisturbed=min(ages) if is_connected else 0.0,
        is_stable=group["join_state"] in STABLE_JOIN_STATES,
        is_callback_due=group["join_state"].endswith("-call"),
    )
