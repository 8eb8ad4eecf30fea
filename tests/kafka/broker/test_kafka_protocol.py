"""Our own requests on a real broker: logins, dead and restarted brokers, descriptions as by librdkafka."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from support.secured import Secured, token
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.clock import SystemClock
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.kafka_protocol.connection import Request
from trimtab.common.kafka_protocol.errors import (
    ConnectionFailedError,
    GroupDeniedError,
    KafkaRequestError,
    LoginFailedError,
)

pytestmark = pytest.mark.broker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "TLS")
DEAD = "127.0.0.1:1"


def connect(config: dict[str, Any], timeout: float = 10.0) -> Brokers:
    return Brokers(config, SystemClock(), client_id="test", timeout=timeout)


@pytest.fixture
def brokers(bootstrap: str) -> Iterator[Brokers]:
    with closing(connect({"bootstrap.servers": f"{DEAD},{bootstrap}"})) as opened:
        yield opened


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_login_is_accepted(guarded_broker: Secured, mechanism: str) -> None:
    """ACLs see the user: a group without any right is refused by name."""
    with closing(connect(guarded_broker.client(mechanism))) as brokers:
        assert brokers.ask(apis.METADATA, {"topics": []}).brokers
        with pytest.raises(GroupDeniedError):
            brokers.find_coordinator("not-granted")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_at_once(guarded_broker: Secured, mechanism: str) -> None:
    """A retry would be refused, too."""
    wrong = {**guarded_broker.client(mechanism), "sasl.password": "wrong"}
    with closing(connect(wrong)) as brokers, pytest.raises(LoginFailedError, match=r"uthentication|invalid"):
        brokers.ask(apis.METADATA, {"topics": []})


def test_a_certificate_for_another_host_is_refused(guarded_broker: Secured) -> None:
    """The name is verified."""
    config = guarded_broker.client("PLAIN", listener="STRANGE")
    with closing(connect(config)) as brokers, pytest.raises(ConnectionFailedError, match="certificate"):
        brokers.ask(apis.METADATA, {"topics": []})


def test_a_login_that_ends_is_renewed(guarded_broker: Secured) -> None:
    """Brokers end sessions with the token (KIP-368): the next request logs in anew, without an error."""
    issued = 0

    def issue(_: str) -> tuple[str, float]:
        nonlocal issued
        issued += 1
        return token("", 2.0)

    given = {**guarded_broker.client("OAUTHBEARER"), "oauth_cb": issue}
    with closing(connect(given)) as brokers:
        while issued < 3:  # each is a connection's
            assert brokers.ask(apis.METADATA, {"topics": []}).brokers


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_described_as_by_librdkafka(
    brokers: Brokers, bootstrap: str, topic: Any, group: str, eventually: Callable[..., None], protocol: str
) -> None:
    """Members, assignments and commits of both protocols."""
    name = topic(2)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol})
    with closing(consumer):
        consumer.subscribe([name])
        eventually(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2)
        consumer.commit(offsets=[TopicPartition(name, 1, 7, metadata="mine")], asynchronous=False)
        theirs = admin.describe_consumer_groups([group])[group].result(30)
        api, field = {
            "classic": (apis.DESCRIBE_GROUPS, "groups"),
            "consumer": (apis.CONSUMER_GROUP_DESCRIBE, "group_ids"),
        }[protocol]
        (ours,) = brokers.ask_coordinator(group, api, {field: [group]}).groups
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(name, n) for n in range(2)])
        commits = admin.list_consumer_group_offsets([wanted])[group].result(30).topic_partitions
        asked = {"group_id": group, "topics": None}
        answer = brokers.ask_coordinator(group, apis.OFFSET_FETCH, {**asked, "groups": [asked]})
    assert {(m.member_id, m.client_id, f"{m.client_host}") for m in ours.members} == {
        (m.member_id, m.client_id, m.host) for m in theirs.members
    }
    rows = [
        (t.name, p.partition_index, p.committed_offset) for t in answer.groups[0].topics for p in t.partitions
    ]
    assert rows == [(c.topic, c.partition, c.offset) for c in commits if c.offset >= 0]


def test_batches_find_the_coordinator_of_each_group(brokers: Brokers, group: str) -> None:
    """More groups than a request takes."""
    groups = [f"{group}-{n}" for n in range(250)]
    brokers.retry(lambda: brokers.find_coordinator(groups[0]))
    assert set(brokers.find_coordinators(groups).values()) == {1}


def test_requests_in_a_row_are_answered_in_order(brokers: Brokers, topic: Any) -> None:
    """They are sent together."""
    names = [topic(n) for n in (1, 2, 3)]
    node = brokers.ask(apis.METADATA, {"topics": []}).brokers[0].node_id
    answers = brokers.ask_broker(node, [Request(apis.METADATA, {"topics": [{"name": n}]}) for n in names])
    assert [len(a.topics[0].partitions) for a in answers] == [1, 2, 3]


def test_a_broker_that_restarts_is_found_again(tmp_path: Path, eventually: Callable[..., None]) -> None:
    """Meanwhile each request is an error that a later try may not meet."""
    with EmbeddedBroker(data=tmp_path) as broker:
        brokers = connect({"bootstrap.servers": broker.bootstrap}, timeout=2.0)
        eventually(lambda: isinstance(brokers.find_coordinators(["g"])["g"], int), timeout=60)
        brokers.ask_coordinator("g", apis.DESCRIBE_GROUPS, {"groups": ["g"]})
        os.kill(broker.pid, signal.SIGKILL)
        with pytest.raises(KafkaRequestError) as failed:
            brokers.ask_coordinator("g", apis.DESCRIBE_GROUPS, {"groups": ["g"]})
        assert failed.value.retryable
    with EmbeddedBroker(broker.port, data=tmp_path):
        eventually(lambda: isinstance(brokers.find_coordinators(["g"])["g"], int), timeout=60)
        assert brokers.ask_coordinator("g", apis.DESCRIBE_GROUPS, {"groups": ["g"]}).groups
    brokers.close()
