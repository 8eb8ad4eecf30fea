"""Load and plan of a group for the assignor alone, in plain kafka-python and aiokafka consumers.

with GroupView({"bootstrap.servers": "localhost:9092", "group.id": "shop"}) as view:
    strategy = [TrimtabAssignor("mwf", view=view)]
    consumer = KafkaConsumer("orders", group_id="shop", partition_assignment_strategy=strategy)
"""

import logging
from types import TracebackType
from typing import Self

from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.common.clock import Clock, SystemClock
from trimtab.consumer_sdk.client.settings import ConsumerConfig, parse_consumer_settings
from trimtab.consumer_sdk.membership.control_topic_reader import (
    CONTROL_TOPICS_READ_TIMEOUT_S,
    ControlTopicReader,
)

log = logging.getLogger("trimtab.consumer_sdk")


class GroupView:
    """Newest write rates and plan from the control topics; lags if the leader needs them.

    `config` has the settings of `trimtab.consumer_sdk.Consumer`: connection, `group.id`,
    `auto.offset.reset`, and the control topics. Raises SettingError and UnknownHeuristicError.
    """

    def __init__(self, config: ConsumerConfig, *, clock: Clock | None = None) -> None:
        self._settings = parse_consumer_settings(config)
        self._reader = ControlTopicReader(self._settings, clock or SystemClock())

    def __call__(self) -> LeaderView:
        """Return the view as an assignor's `view=` takes it; never blocks.

        A leader that places by lag then asks the brokers for what no sidecar publishes, for at most
        `group_lag.LAG_TIMEOUT_S`; the other members ask for nothing.
        """
        return self._reader.build_leader_view()

    def start(self) -> None:
        """Read the control topics, up to CONTROL_TOPICS_READ_TIMEOUT_S, and follow them in a thread."""
        self._reader.start()
        if not self._reader.wait_until_read(CONTROL_TOPICS_READ_TIMEOUT_S):
            log.warning(
                "group %s: no answer from %s in %g s about the control topics; until there is one, "
                "partitions are placed without the plan and write rates of a sidecar",
                self._settings.group,
                self._settings.bootstrap,
                CONTROL_TOPICS_READ_TIMEOUT_S,
            )

    def close(self) -> None:
        """Stop to follow the control topics."""
        self._reader.stop()

    def __enter__(self) -> Self:
        """Start; a view is closed after its consumer."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
