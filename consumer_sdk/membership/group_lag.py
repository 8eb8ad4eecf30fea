"""Asks the brokers for a group's lag: for `lag-aware` without a sidecar that publishes it."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final, TypeAlias

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka import admin as admin_api
from confluent_kafka.admin import AdminClient

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.partition_index import PartitionIndex
from trimtab.common.kafka_security import client_config
from trimtab.common.lag import RESET_TO_END_VALUES, compute_lag

log = logging.getLogger("trimtab.consumer_sdk")

OffsetAnswers: TypeAlias = Mapping[RawPartition, "Future[Any]"]

OFFSET_SPEC: Final[Any] = getattr(admin_api, "OffsetSpec")  # noqa: B009 - neither typed nor exported
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
            # The lag of a partition without a commit depends on where the group would start (KAFKA-5337).
            reset = self._config.get("auto.offset.reset", "latest")
            admin = AdminClient({**connection, "log_level": 2})
            partitions = partition_index.list_partitions()
            from_beginning = reset not in RESET_TO_END_VALUES
            self._lags = measure_lags(admin, self._group, partitions, from_beginning=from_beginning)
        except Exception as error:  # noqa: BLE001 - a token callback may raise anything
            log.warning("lag of group %s: %s; using the previous values", self._group, error)


def measure_lags(
    admin: AdminClient, group: str, partitions: list[TopicPartition], *, from_beginning: bool
) -> dict[TopicPartition, int]:
    """Return the lag in records of each partition; without those that a broker does not tell.

    Raises KafkaException if the group's coordinator does not answer.
    """
    if not partitions:
        return {}
    raw = [RawPartition(*p) for p in partitions]
    request = ConsumerGroupTopicPartitions(group, raw)
    # All at once: the requests go to different brokers.
    fetched = admin.list_consumer_group_offsets([request], request_timeout=LAG_TIMEOUT_S)[group]
    ends = _request_offsets(admin, raw, OFFSET_SPEC.latest())
    beginnings = _request_offsets(admin, raw, OFFSET_SPEC.earliest())
    # librdkafka marks a partition without a commit by a negative offset.
    answer = (p for p in fetched.result().topic_partitions if p.error is None)
    committed = {TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in answer}
    end, beginning = _read_offsets(ends), _read_offsets(beginnings)
    return {
        p: compute_lag(end[p], committed[p], beginning[p], from_beginning=from_beginning)
        for p in partitions
        if p in end and p in beginning and p in committed
    }


def _request_offsets(admin: AdminClient, partitions: list[RawPartition], spec: Any) -> OffsetAnswers:
    specs: dict[RawPartition, Any] = dict.fromkeys(partitions, spec)
    return admin.list_offsets(specs, request_timeout=LAG_TIMEOUT_S)


def _read_offsets(answers: OffsetAnswers) -> dict[TopicPartition, int]:
    return {
        TopicPartition(p.topic, p.partition): answer.result().offset
        for p, answer in answers.items()
        if answer.exception() is None  # a partition without a leader, for instance
    }
