"""Committed offsets from a coordinator that responds in part."""

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError
from ticking import Ticking

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.kafka import broker_client
from trimtab.sidecar.kafka.broker_client import BrokerClient

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
    monkeypatch.setattr(broker_client, "AdminClient", made)
    return made


def test_missing_commit_is_known(reader: type[Reader]) -> None:
    """Offset -1001 without an error means that the group has no commit there."""
    reader.answers = (Answer(0, 5), Answer(1, NEVER))
    commits = BrokerClient({}, "billing", 3.0, Ticking()).fetch_group_commits((P, Q))
    assert (commits.is_known, commits.offsets, commits.errors) == (True, {P: 5}, ())


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
