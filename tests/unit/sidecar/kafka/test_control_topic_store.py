"""The control topics where there is no broker to keep them."""

import pytest
from confluent_kafka.admin import AdminClient

from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import load_settings


def test_nobody_at_the_address_names_the_address() -> None:
    """Without a broker the message says which address was tried, and what to check."""
    nobody = "127.0.0.1:1"
    flags = {"bootstrap": nobody, "group": "g", "capacity": 100, "target": "none", "timeout": 0.5}
    settings = load_settings(None, flags)
    board = ControlTopicStore(settings, AdminClient({**settings.client_config, "log_level": 0}))
    with pytest.raises(BrokerTimeoutError, match=rf"answers at {nobody} .*is it running.*--bootstrap"):
        board.read_plan()
