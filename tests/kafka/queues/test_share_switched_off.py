"""Share queues on a broker with share groups disabled."""

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

_ADMIN: Any = KafkaAdminClient  # its methods come from mix-ins that type checkers do not see


def test_disabled_share_groups_are_reported() -> None:
    """The error names the feature to upgrade and the queue kind that works without it."""
    with EmbeddedBroker() as broker:
        config = {"bootstrap.servers": broker.bootstrap, "group.id": "workers"}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        client = _ADMIN(bootstrap_servers=broker.bootstrap)
        client.update_features({SHARE_VERSION_FEATURE: ("SAFE_DOWNGRADE", 0)})
        client.close()
        with pytest.raises(ShareGroupsUnsupportedError, match=r"share\.version=0.*upgrade.*kmq"):
            open_queue("share", "orders", config)
