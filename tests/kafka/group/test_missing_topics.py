"""A topic that does not exist is reported, and not created: also by brokers that create topics by default."""

import logging
from collections.abc import Callable, Generator
from contextlib import closing
from time import sleep
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.conftest import Eventually
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.lake.tables import dead_letters
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.settings import parse_queue_settings
from trimtab.sidecar.kafka.cluster_client import ClusterClient

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def creating_broker() -> Generator[str]:
    """Run a broker with Kafka's default; return its address."""
    with EmbeddedBroker(properties={"auto.create.topics.enable": "true"}) as broker:
        yield broker.bootstrap


def ask_as_sidecar(bootstrap: str, topic: str) -> None:
    client = ClusterClient({"bootstrap.servers": bootstrap}, 10.0)
    assert client.explain_missing_topic(topic) == f"topic {topic!r} does not exist"


def ask_as_queue(bootstrap: str, topic: str) -> None:
    settings = parse_queue_settings(topic, {"bootstrap.servers": bootstrap, "group.id": "g"})
    topics.create_admin_client(settings).list_topics(topic, timeout=10)


def ask_as_replay(bootstrap: str, topic: str) -> None:
    settings = dead_letters.build_producer_settings({"bootstrap.servers": bootstrap})
    Producer(settings).list_topics(topic, timeout=10)


@pytest.mark.parametrize("ask", [ask_as_sidecar, ask_as_queue, ask_as_replay])
def test_who_asks_for_a_missing_topic_does_not_create_it(
    creating_broker: str, ask: Callable[[str, str], None], eventually: Eventually
) -> None:
    """A request for one topic creates it, after the answer; a later one, by another client, shows that."""
    missing, created = f"{ask.__name__}-missing", f"{ask.__name__}-created"
    ask(creating_broker, missing)
    admin = AdminClient({"bootstrap.servers": creating_broker})
    admin.list_topics(created, timeout=10)
    eventually(lambda: created in admin.list_topics(timeout=10).topics)
    assert missing not in admin.list_topics(timeout=10).topics


def test_a_missing_topic_is_logged_once_and_nothing_else_is(
    config: dict[str, Any], topic: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """No line of the client inside, as of a slow callback, and none of a sidecar that was never asked for."""
    present, missing = topic(partitions=2), f"{topic(partitions=1)}-missing"

    def release_slowly(*_: Any) -> None:
        sleep(1.2)  # a listener that runs on the client's thread blocks it; ours does not

    with closing(Consumer(config)) as first, closing(Consumer({**config, "trimtab.instance": "b"})) as second:
        first.subscribe([present, missing], on_revoke=release_slowly)
        first.consume(1, timeout=4)
        second.subscribe([present])
        for _ in range(20):
            first.consume(1, timeout=0.1)
            second.consume(1, timeout=0.1)
    logged = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(logged) == 1, logged
    assert missing in logged[0]
