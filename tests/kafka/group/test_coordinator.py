"""The private members of kafka-python that the SDK uses."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka.structs import TopicPartition as KafkaPartition

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.classic import coordinator, group_commits

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]


def test_private_members_of_kafka_python_behave_as_expected(
    topic: Any, start: Any, eventually: Eventually
) -> None:
    """Join, generation, leadership, heartbeats, commits, rejoin and leave work through the adapters."""
    name = topic(partitions=1)
    worker = start("only", [name])
    eventually(lambda: len(worker.owned) == 1)
    client = worker.consumer._member.client
    generation = coordinator.generation_id(client)
    assert generation > 0
    assert coordinator.member_id(client).startswith("only-")
    assert coordinator.is_leader(client)
    eventually(
        lambda: (
            coordinator.read_heartbeat_times(client).received_at
            >= coordinator.read_heartbeat_times(client).sent_at
            > 0
        )
    )
    assert SystemClock().monotonic() - coordinator.read_heartbeat_times(client).sent_at < 5
    assert coordinator.find_missing_topics(client, [name, "no-such-topic"]) == {"no-such-topic"}
    coordinator.request_rejoin(client)
    eventually(
        lambda: coordinator.generation_id(client) == generation + 1 and not coordinator.is_joining(client)
    )
    done: list[Any] = []
    partition = next(iter(worker.owned))
    group_commits.commit_offsets(client, {partition: CommitPosition(7, "note")}, 10, lambda: True)
    group_commits.commit_offsets_async(client, {partition: CommitPosition(8)}, lambda: True, done.append)
    eventually(lambda: done == [None])
    assert client.committed(_kafka(partition), metadata=True).offset == 8
    coordinator.leave_group(client, "a test")
    eventually(lambda: worker.assigns == 2)


def test_a_membership_lost_during_a_join_is_reported(topic: Any, start: Any, eventually: Eventually) -> None:
    """The owned partitions count as lost and are not carried into the new membership."""
    worker = start("only", [topic(partitions=1)])
    eventually(lambda: len(worker.owned) == 1)
    client = worker.consumer._member.client
    before = coordinator.member_id(client)
    client._coordinator.rejoining = (
        True  # state of a join after its first attempt has collected the lost partitions
    )
    client._coordinator.reset_generation()  # effect of an UNKNOWN_MEMBER_ID response
    eventually(lambda: worker.assigns == 2)
    assert coordinator.member_id(client) != before


def _kafka(partition: Any) -> Any:
    return KafkaPartition(*partition)
