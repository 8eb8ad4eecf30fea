"""Commits of partitions that were begun before their round wait for it, in order."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.classic import group_commits
from trimtab.consumer_sdk.membership.classic.coordinator import MembershipListener

BEGUN, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Group:
    """Stand-in for the coordinator of a client; it notes the commits that reach the broker."""

    def __init__(self) -> None:
        self.unconfirmed = {BEGUN}
        self.waiting_commits: list[object] = []
        self.open_commits, self.doubtful_generation = 0, -1
        self.sent: list[tuple[int, int]] = []
        ignored: Any = None
        self._membership_listener = MembershipListener(
            *(ignored,) * 5, is_unconfirmed=lambda partitions: bool(self.unconfirmed.intersection(partitions))
        )

    async def ensure_coordinator_ready_async(self, timeout_ms: float) -> None:
        del timeout_ms

    async def _send_offset_commit_request(self, offsets: Any) -> None:
        self.sent += [(p.partition, at.offset) for p, at in offsets.items()]


async def commit(client: Any, partition: TopicPartition, offset: int) -> None:
    await group_commits._send_commit(client, {partition: CommitPosition(offset)}, lambda: True)


def make_client(group: Group) -> Any:
    return SimpleNamespace(_coordinator=group, _net=SimpleNamespace(sleep=asyncio.sleep))


async def start(*commits: Any) -> Any:
    """Start commits; return once each of them has been sent or waits."""
    tasks = asyncio.gather(*commits)
    for _ in range(10):
        await asyncio.sleep(0)
    return tasks


def test_a_commit_of_a_begun_partition_waits_for_the_round() -> None:
    """The former owner may still repeat its last commit, which would rewind this one."""

    async def run() -> None:
        group = Group()
        tasks = await start(commit(make_client(group), BEGUN, 5))
        assert group.sent == []
        group.unconfirmed.clear()
        await tasks
        assert group.sent == [(0, 5)]

    asyncio.run(run())


def test_other_partitions_wait_for_nothing() -> None:
    """A round may take as long as the longest flush."""

    async def run() -> None:
        group = Group()
        await start(commit(make_client(group), OTHER, 5))
        assert group.sent == [(1, 5)]

    asyncio.run(run())


@pytest.mark.parametrize("partitions", [(BEGUN, BEGUN, BEGUN), (BEGUN, OTHER, BEGUN)])
def test_commits_that_wait_keep_their_order(partitions: Iterable[TopicPartition]) -> None:
    """A later commit that passes an earlier one of the same partition would be rewound."""

    async def run() -> None:
        group = Group()
        client = make_client(group)
        tasks = await start(*(commit(client, p, number) for number, p in enumerate(partitions)))
        group.unconfirmed.clear()
        await tasks
        assert [offset for _, offset in group.sent] == [0, 1, 2]

    asyncio.run(run())
