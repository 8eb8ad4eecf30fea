"""Asks the brokers for a group's lag: for `lag-aware` without a sidecar that publishes it."""

import logging
from collections.abc import Iterable, Mapping
from threading import Thread
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_security import client_config
from trimtab.common.lag import RESET_TO_END_VALUES, compute_lag
from trimtab.consumer_sdk.log_rate_limit import LIBRDKAFKA_LOGGER

log = logging.getLogger("trimtab.consumer_sdk")

LAG_TIMEOUT_S: Final = 3.0  # of all requests together: the group waits for its leader


class GroupLag:
    """Newest known lag of a group's partitions, in records."""

    def __init__(self, group: str, librdkafka_config: Mapping[str, Any]) -> None:
        self._group = group
        self._config = librdkafka_config  # not copied: its credentials may change
        self._lags: Mapping[TopicPartition, int] = {}

    def measure(self, partition_index: PartitionIndex) -> Mapping[TopicPartition, int]:
        """Return the lag of each partition; the previous values if the brokers do not answer in time."""
        # In a thread, since closing a client whose broker has gone may block for longer.
        thread = Thread(target=self._ask, args=(partition_index,), name="trimtab-group-lag", daemon=True)
        thread.start()
        thread.join(LAG_TIMEOUT_S)
        if thread.is_alive():
            log.warning(
                "lag of group %s: no answer within %g s; using the previous values",
                self._group,
                LAG_TIMEOUT_S,
            )
        return self._lags

    def _ask(self, partition_index: PartitionIndex) -> None:
        try:
            connection = client_config.extract_connection_settings(self._config)
            own = {"group.id": self._group, "enable.auto.commit": False, "logger": LIBRDKAFKA_LOGGER}
            consumer = DataConsumer({**connection, **own})
            try:
                # The lag of a partition without a commit depends on where the group would start.
                from_beginning = self._config.get("auto.offset.reset", "latest") not in RESET_TO_END_VALUES
                partitions = partition_index.list_partitions()
                self._lags = measure_lags(consumer, partitions, from_beginning=from_beginning)
            finally:
                consumer.close()
        except Exception as error:  # noqa: BLE001 - a token callback may raise anything
            log.warning("lag of group %s: %s; using the previous values", self._group, error)


def measure_lags(
    consumer: DataConsumer, partitions: Iterable[TopicPartition], *, from_beginning: bool
) -> dict[TopicPartition, int]:
    """Return the lag in records of each partition; without those that a broker does not tell.

    Raises KafkaException if the brokers do not answer.
    """
    names = list(partitions)
    # Not AdminClient's requests: librdkafka 2.16 corrupts its heap when their broker or leader is missing.
    committed = _read_offsets(consumer.committed([RawPartition(*p) for p in names], timeout=LAG_TIMEOUT_S))
    # As timestamps these two ask for the ends of the log (ListOffsets).
    end, beginning = (
        _read_offsets(
            consumer.offsets_for_times([RawPartition(*p, where) for p in names], timeout=LAG_TIMEOUT_S)
        )
        for where in (OFFSET_END, OFFSET_BEGINNING)
    )
    return {
        # librdkafka marks a partition without a commit by a negative offset
        p: compute_lag(
            end[p], committed[p] if committed[p] >= 0 else None, beginning[p], from_beginning=from_beginning
        )
        for p in names
        if p in end and p in beginning and p in committed
    }


def _read_offsets(answer: Iterable[RawPartition]) -> dict[TopicPartition, int]:
    return {TopicPartition(p.topic, p.partition): p.offset for p in answer if p.error is None}
