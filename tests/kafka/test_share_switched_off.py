"""A real broker with share groups switched off: the error says what to do."""

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.errors import ShareGroupsUnsupportedError
from trimtab.common.share_group_support import SHARE_VERSION_FEATURE
from trimtab.consumer_sdk.queues import open_queue

pytestmark = pytest.mark.broker

_ADMIN: Any = KafkaAdminClient  # its methods come from mix-ins that checkers do not see


def test_a_broker_with_share_groups_switched_off_is_named() -> None:
    """The error names the feature and the queue kind without share groups."""
    with EmbeddedBroker() as broker:
        config = {"bootstrap.servers": broker.bootstrap, "group.id": "workers"}
        made = AdminClient({"bootstrap.servers": broker.bootstrap})
        made.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        client = _ADMIN(bootstrap_servers=broker.bootstrap)
        client.update_features({SHARE_VERSION_FEATURE: ("SAFE_DOWNGRADE", 0)})
        client.close()
        with pytest.raises(ShareGroupsUnsupportedError, match=r"share\.version=0.*upgrade.*kmq"):
            open_queue("share", "orders", config)
