"""A commit of a member that has ended, or ends meanwhile, fails with an error of Kafka's."""

from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.coordinator.base import Generation
from kafka.errors import Cancelled, KafkaTimeoutError, UnknownMemberIdError
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.classic.group_commits import commit_offsets, commit_offsets_async

OFFSETS = {TopicPartition("t", 0): CommitPosition(1, "")}


class Client:
    """The parts of kafka-python's consumer that a commit uses; `end` is what its member's end does."""

    def __init__(self) -> None:
        self._net = NetworkSelector()
        self._manager = SimpleNamespace(call_soon=self._net.call_soon_with_future, _net=self._net)
        self._manager.wait_for = partial(KafkaConnectionManager.wait_for, self._manager)
        self._coordinator = SimpleNamespace(
            config={"retry_backoff_ms": 1},
            open_commits=0,
            _generation=Generation(7, "m", "trimtab"),
            ensure_coordinator_ready_async=self._end,
        )

    def end(self) -> None:
        self._net.close()

    async def _end(self, **_named: Any) -> None:
        self.end()
        raise Cancelled


def test_a_commit_of_a_member_that_ends_meanwhile_has_a_kafka_error() -> None:
    """Its end cancels the first attempt; the second one finds kafka-python closed."""
    with pytest.raises(UnknownMemberIdError):
        commit_offsets(Client(), OFFSETS, 10, lambda: True)


def test_a_commit_without_an_answer_ends_after_its_timeout() -> None:
    """The request goes on until kafka-python's own timeout of 30 s, and counts as unanswered."""
    client, begun = Client(), monotonic()
    client._coordinator.ensure_coordinator_ready_async = lambda **_: client._net.sleep(20)
    with pytest.raises(KafkaTimeoutError):
        commit_offsets(client, OFFSETS, 0.2, lambda: True)
    assert monotonic() - begun < 5
    assert client._coordinator.open_commits == 1


def test_an_asynchronous_commit_of_a_member_that_has_ended_reports_a_kafka_error() -> None:
    """The caller's commit does not raise: its callback has the error, as that of any other failed commit."""
    client, done = Client(), list[Exception | None]()
    client.end()
    commit_offsets_async(client, OFFSETS, lambda: True, done.append)
    assert [type(error) for error in done] == [UnknownMemberIdError]


def test_another_runtime_error_is_not_taken_for_the_end_of_the_member() -> None:
    """Such as that of a blocking call on the I/O thread."""
    client = Client()
    client._net.run = _raise_runtime_error  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="Cannot block"):
        commit_offsets(client, OFFSETS, 10, lambda: True)


def _raise_runtime_error(*_: Any) -> None:
    raise RuntimeError("Cannot block on net.run() from the IO thread itself")
