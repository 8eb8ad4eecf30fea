"""The sidecar's view of its group while the broker restarts."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.sidecar.kafka.broker_client import BrokerClient

pytestmark = pytest.mark.broker


def can_read_group(brokers: BrokerClient) -> bool:
    return brokers.fetch_group_commits().is_known and not brokers.describe_group()[1]


def test_group_is_readable_after_a_broker_restart(tmp_path: Path, eventually: Callable[..., None]) -> None:
    """A request in flight when the broker is killed does not break later requests."""
    with EmbeddedBroker(data=tmp_path) as broker:
        client = {"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 2000, "log_level": 0}
        brokers = BrokerClient(client, "g", timeout=2.0)
        brokers.admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        eventually(lambda: brokers.fetch_cluster_metadata().leaders and can_read_group(brokers), timeout=60)
        os.kill(broker.pid, signal.SIGKILL)
        assert brokers.fetch_cluster_metadata().errors
        assert brokers.describe_group()[1] != ()
        assert not brokers.fetch_group_commits().is_known
    with EmbeddedBroker(broker.port, data=tmp_path):
        eventually(lambda: can_read_group(brokers), timeout=60)
    brokers.close()
