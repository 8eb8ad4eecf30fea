"""What the sidecar sees of its group when the broker dies and comes back."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.sidecar.kafka.broker_client import BrokerClient

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]


def answers(brokers: BrokerClient) -> bool:
    return brokers.fetch_group_commits().is_known and not brokers.describe_group()[1]


def test_the_group_is_seen_again_after_the_broker_was_killed(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """A question that was under way when the broker died does not spoil all later ones."""
    with EmbeddedBroker(data=tmp_path) as broker:
        client = {"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 2000, "log_level": 0}
        brokers = BrokerClient(client, "g", timeout=2.0)
        brokers.admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        eventually(lambda: brokers.fetch_cluster_metadata().leaders and answers(brokers), timeout=60)
        os.kill(broker.pid, signal.SIGKILL)
        assert brokers.fetch_cluster_metadata().trouble
        assert brokers.describe_group()[1] != ()
        assert not brokers.fetch_group_commits().is_known
    with EmbeddedBroker(broker.port, data=tmp_path):
        eventually(lambda: answers(brokers), timeout=60)
    brokers.close()
