"""Committed offsets from a coordinator that responds in part."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import SubscriptionDecoder
from trimtab.assignor.rebalance.user_data import MemberUserData
from trimtab.sidecar.kafka import broker_client, cluster_client
from trimtab.sidecar.kafka.broker_client import BrokerClient, _parse_described

NEVER = -1001
P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)


@dataclass
class Answer:
    """One partition's result, as the client returns it."""

    partition: int
    offset: int
    error: KafkaError | None = None
    topic: str = "orders"
    metadata: str = ""


class Reader:
    """A consumer without a broker."""

    answers: tuple[Answer, ...] = ()

    def __init__(self, *_: object) -> None: ...

    def committed(self, *_: object, **__: object) -> tuple[Answer, ...]:
        return self.answers

    def consume(self, *_: object, **__: object) -> list[Any]:
        return []


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> type[Reader]:
    made = type("Own", (Reader,), {})
    monkeypatch.setattr(broker_client, "Consumer", made)
    monkeypatch.setattr(cluster_client, "AdminClient", made)
    return made


def test_missing_commit_is_known(reader: type[Reader]) -> None:
    """Offset -1001 without an error means that the group has no commit there."""
    reader.answers = (Answer(0, 5), Answer(1, NEVER))
    commits = BrokerClient({}, "billing", 3.0, Ticking()).fetch_group_commits((P, Q))
    assert (commits.is_known, commits.offsets, commits.errors) == (True, {P: 5}, ())


def test_metadata_that_is_no_text_hides_no_offset(reader: type[Reader]) -> None:
    """librdkafka reads beyond the end of a commit's metadata; what is no text then counts as none."""

    class Garbled(Answer):
        @property
        def metadata(self) -> str:  # type: ignore[override]
            return b"go-1\xd9".decode()

        @metadata.setter
        def metadata(self, _: str) -> None: ...

    reader.answers = (Garbled(0, 5), Answer(1, 7, metadata="{}"))
    commits = BrokerClient({}, "billing", 3.0, Ticking()).fetch_group_commits((P, Q))
    assert (commits.offsets, commits.metadata) == ({P: 5, Q: 7}, {Q: "{}"})


@pytest.mark.parametrize(
    ("code", "waits"),
    [(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, True), (KafkaError.UNKNOWN_TOPIC_OR_PART, False)],
)
def test_error_of_one_partition_makes_the_commits_unknown(
    reader: type[Reader], code: int, *, waits: bool
) -> None:
    """An error is no missing commit; a temporary one is retried."""
    reader.answers = (Answer(0, 5), Answer(1, NEVER, KafkaError(code)))
    clock = Ticking()
    began = clock.now
    commits = BrokerClient({}, "billing", 3.0, clock).fetch_group_commits((P, Q))
    assert (commits.is_known, commits.offsets) == (False, {})
    assert commits.errors == (f"committed offsets: {KafkaError(code).str()}",)
    assert (clock.now - began >= 3.0) is waits


@pytest.mark.parametrize(
    ("user_data", "capacity"),
    [(MemberUserData(capacity=20.0).encode(), 20.0), (b"another's", None), (b'{"v":1,"capacity":-1}', None)],
)
def test_a_members_capacity_and_topics_are_read(user_data: bytes, capacity: float | None) -> None:
    """Members differ in both; foreign user data hides no subscription."""
    sent = ConsumerProtocolSubscription(
        version=3, topics=["u", "t"], user_data=user_data, owned_partitions=[], generation_id=-1, rack_id=None
    )
    member = SimpleNamespace(
        id="m", client_id="w", client_host="", assignment=None, metadata=bytes(sent.encode())
    )
    parsed = _parse_described(member, SubscriptionDecoder())
    assert (parsed.capacity, parsed.topics) == (capacity, {"t", "u"})


def test_a_member_that_has_yet_to_join_has_unknown_topics() -> None:
    """The broker describes it without metadata while the group rebalances."""
    member = SimpleNamespace(id="m", client_id="w", client_host="", assignment=None, metadata=b"")
    assert _parse_described(member, SubscriptionDecoder()).topics is None
