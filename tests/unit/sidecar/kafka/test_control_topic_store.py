"""The control topics without a broker."""

import pytest
from confluent_kafka.admin import AdminClient

from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import load_settings


def test_unreachable_broker_names_the_address() -> None:
    """The error has the address and what to check."""
    address = "127.0.0.1:1"
    flags = {"bootstrap": address, "group": "g", "capacity": 100, "target": "none", "timeout": 0.5}
    settings = load_settings(None, flags)
    store = ControlTopicStore(settings, AdminClient({**settings.client_config, "log_level": 0}))
    with pytest.raises(BrokerTimeoutError, match=rf"answers at {address} .*is it running.*--bootstrap"):
        store.read_plan()
