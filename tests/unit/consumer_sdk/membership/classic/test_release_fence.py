"""Within one generation the broker refuses no commit: the confirmation is what keeps the former owner's away.

Requests of the former owner are delivered, answered and given up in random orders; one that was given up may
still be delivered later. The commits of both owners, the confirmation and the watch are the product's. Where
time passes, the former owner may have to find its coordinator before each request, and rule 3's wait ends.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from kafka.errors import KafkaConnectionError, KafkaError

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.commit_metadata import encode_confirmation, parse_release
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.consumer.offset_commits import LAST_COMMIT_TIMEOUT_S
from trimtab.consumer_sdk.consumer.partition_state import build_final_commit
from trimtab.consumer_sdk.membership.classic import coordinator, group_commits
from trimtab.consumer_sdk.membership.classic.coordinator import MembershipListener
from trimtab.consumer_sdk.membership.classic.member import MAX_RELEASE_S
from trimtab.consumer_sdk.membership.release_watch import CONFIRMATION_TIMEOUT_S, FIRST_LOOK_S, ReleaseWatch

P = TopicPartition("orders", 0)
ROUND = "7:abc"
SEEDS = 400
STEPS = 60
TIMED_STEPS = 160
MAX_STEP_S = 0.2
ATTEMPTS = 3  # of the last commit
MAX_DELIVERY_S = CONFIRMATION_TIMEOUT_S - LAST_COMMIT_TIMEOUT_S - MAX_STEP_S


@dataclass(eq=False)
class Request:
    """A commit on its way, or executed and not answered yet."""

    by_former_owner: bool
    offset: int
    metadata: str
    answer: "asyncio.Future[None]"
    sent_at: float
    is_executed: bool = False


@dataclass
class Broker:
    """The committed offset, and the requests that may still reach it."""

    rng: random.Random
    step_s: float  # at most
    now: float = 0.0
    requests: list[Request] = field(default_factory=list[Request])
    committed: Request | None = None
    commits_of_next_owner: int = 0
    is_rewound: bool = False

    def execute(self, request: Request) -> None:
        request.is_executed = True
        self.committed = request
        self.is_rewound |= request.by_former_owner and self.commits_of_next_owner > 0
        self.commits_of_next_owner += not request.by_former_owner

    def step(self) -> None:
        """Deliver, answer or give up one request."""
        self.now += self.rng.uniform(0, self.step_s)
        for late in [r for r in self.requests if self.now - r.sent_at > MAX_DELIVERY_S and not r.is_executed]:
            self.execute(late)
        if not self.requests:
            return
        request = self.rng.choice(self.requests)
        if not request.is_executed and self.rng.random() < 0.6:
            self.execute(request)
        elif request.is_executed and not request.answer.done():
            request.answer.set_result(None)
        elif not request.answer.done() and request.by_former_owner:
            request.answer.set_exception(KafkaConnectionError())
        if request.is_executed and request.answer.done():
            self.requests.remove(request)

    def find_released(self, _client: Any, _wanted: Any, token: str, _timeout: float) -> dict[Any, bool]:
        release = parse_release(self.committed.metadata if self.committed else "")
        return {P: release.is_confirmed} if release.token == token else {}


class Group:
    """Stand-in for one owner's coordinator."""

    def __init__(self, broker: Broker, watch: ReleaseWatch | None) -> None:
        self.waiting_commits: list[object] = []
        self.open_commits, self.doubtful_generation = 0, -1
        self._generation = SimpleNamespace(generation_id=7)
        self._broker, self._is_former = broker, watch is None
        nothing: Any = mock.Mock()
        unconfirmed = (lambda p: watch.is_unconfirmed(broker.now, p)) if watch else (lambda _: False)
        self._membership_listener = MembershipListener(*(nothing,) * 5, is_unconfirmed=unconfirmed)

    async def ensure_coordinator_ready_async(self, timeout_ms: float) -> None:
        broker = self._broker
        ready_at = broker.now
        if self._is_former and broker.step_s and broker.rng.random() < 0.5:
            ready_at += broker.rng.uniform(0, timeout_ms / 1000)
        while broker.now < ready_at:  # noqa: ASYNC110 - the seed's steps are the clock
            await asyncio.sleep(0)

    async def _send_offset_commit_request(self, offsets: Any) -> None:
        ((_, at),) = offsets.items()
        answer = asyncio.get_running_loop().create_future()
        broker = self._broker
        broker.requests.append(Request(self._is_former, at.offset, at.metadata, answer, broker.now))
        await answer


async def release(client: Any, broker: Broker, limit: float) -> None:
    """Commit as a consumer does that gives a partition up, while an earlier commit is under way."""
    began = broker.now
    earlier = asyncio.ensure_future(group_commits._send_commit(client, {P: CommitPosition(90)}, lambda: True))
    await asyncio.sleep(0)
    last = build_final_commit({P: 100}, 5.0, ROUND)
    is_answered = False
    for _ in range(ATTEMPTS):
        with suppress(KafkaError):
            await group_commits._send_commit(client, last, lambda: broker.now - began < limit)
            is_answered = True
            break
    with suppress(KafkaError):
        if is_answered:
            confirmed = {P: CommitPosition(100, encode_confirmation(last[P].metadata))}
            await group_commits._confirm_release(
                client, confirmed, lambda: broker.now - began < MAX_RELEASE_S
            )
    with suppress(KafkaError):
        await earlier


async def hand_over(seed: int, *, step_s: float, limit: float) -> Broker:
    """Move a partition from one owner to the next, in the order of a seed."""
    rng = random.Random(seed)  # noqa: S311 - chance that can be repeated
    broker = Broker(rng, step_s)
    watch = ReleaseWatch([P], 7, ROUND, -FIRST_LOOK_S, is_only_round=True)
    former, following = (
        SimpleNamespace(_coordinator=Group(broker, w), _net=SimpleNamespace(sleep=lambda _: asyncio.sleep(0)))
        for w in (None, watch)
    )
    tasks = [asyncio.ensure_future(release(former, broker, limit))]
    with (
        mock.patch.object(coordinator, "find_released", broker.find_released),
        mock.patch.object(coordinator, "claim_partitions", return_value=True),
    ):
        for _ in range(TIMED_STEPS if step_s else STEPS):
            await asyncio.sleep(0)
            if rng.random() < 0.3:
                watch._next_look_at = 0.0
                if coordinator.begin_released(watch, None, broker.now):
                    commit = group_commits._send_commit(following, {P: CommitPosition(120)}, lambda: True)
                    tasks.append(asyncio.ensure_future(commit))
            else:
                broker.step()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return broker


def hand_over_often(*, step_s: float = 0.0, limit: float = LAST_COMMIT_TIMEOUT_S) -> list[Broker]:
    return [asyncio.run(hand_over(seed, step_s=step_s, limit=limit)) for seed in range(SEEDS)]


@pytest.mark.parametrize("step_s", [0.0, MAX_STEP_S], ids=["confirmed", "confirmed, or the wait has ended"])
def test_no_order_of_requests_rewinds_the_next_owner(step_s: float) -> None:
    """No commit of the former owner takes effect after the first one of the next; most next owners commit."""
    ends = hand_over_often(step_s=step_s)
    assert not any(broker.is_rewound for broker in ends)
    assert sum(broker.commits_of_next_owner for broker in ends) > SEEDS / 10


def test_a_last_commit_without_a_limit_outlasts_the_wait() -> None:
    """An owner that has to find its coordinator first would send it after the next owner's commit."""
    assert any(broker.is_rewound for broker in hand_over_often(step_s=MAX_STEP_S, limit=inf))


async def confirm_in_doubt(client: Any, offsets: Any, still_member: Any) -> bool:
    await group_commits._send_commit(client, offsets, still_member)
    return True


@pytest.mark.parametrize(
    "broken",
    [
        lambda: mock.patch.object(group_commits, "_confirm_release", confirm_in_doubt),
        lambda: mock.patch.object(ReleaseWatch, "is_unconfirmed", return_value=False),
    ],
    ids=["confirmed with commits in doubt", "confirmation not awaited"],
)
def test_a_broken_fence_rewinds_the_next_owner(broken: Callable[[], Any]) -> None:
    """The orders prove the fence only if they show that it is needed."""
    with broken():
        assert any(broker.is_rewound for broker in hand_over_often())
