"""What the sidecar sees of its group when the broker dies and comes back."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.cli.broker_embedded import EmbeddedBroker
from trimtab.sidecar.brokers import Brokers

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]


def test_the_group_is_seen_again_after_the_broker_was_killed(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """A question that was under way when the broker died does not spoil all later ones."""
    with EmbeddedBroker(data=tmp_path) as broker:
        client = {"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": 1000, "log_level": 0}
        brokers = Brokers(client, "g", timeout=1.0)
        eventually(lambda: brokers.commits().known, timeout=30)
        os.kill(broker.pid, signal.SIGKILL)
        assert not brokers.commits().known
        assert brokers.group()[1] != ()
    with EmbeddedBroker(broker.port, data=tmp_path):
        eventually(lambda: brokers.commits().known and brokers.group()[1] == (), timeout=60)
