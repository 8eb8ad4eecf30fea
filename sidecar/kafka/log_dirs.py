"""Sizes of leader replicas on the brokers' disks (DescribeLogDirs); needs Describe on the cluster."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient  # confluent-kafka does not offer DescribeLogDirs
from kafka.errors import ClusterAuthorizationFailedError, KafkaError

from trimtab.assignor.model import TopicPartition
from trimtab.common.kafka_security import client_config
from trimtab.sidecar.kafka.cluster_client import PartitionOffsets


class LogDirsClient:
    """Fetches the size of each partition's leader replica."""

    def __init__(self, client: Mapping[str, Any], timeout: float) -> None:
        self._config = translate_to_kafka_python(client, timeout)
        self._admin: Any = None  # its methods come from mix-ins that checkers do not see
        self._last_leaders: Mapping[TopicPartition, int] = {}

    def fetch_replica_sizes(self, leaders: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """Return bytes by partition; absent without a response or after a change of leader."""
        last, self._last_leaders = self._last_leaders, dict(leaders)
        # replicas differ in size: growth from the old leader's to the new one's is no write rate
        stable = {p: b for p, b in leaders.items() if last.get(p, b) == b and b >= 0}
        try:
            sizes = self._describe_log_dirs(stable)
        except (KafkaError, OSError) as error:
            self.close()
            denied = isinstance(error, ClusterAuthorizationFailedError)
            remedy = "; grant Describe on cluster" if denied else ""
            return PartitionOffsets({}, (f"log directories: {type(error).__name__}: {error}{remedy}",))
        return PartitionOffsets({p: size for (p, broker), size in sizes.items() if stable[p] == broker})

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _describe_log_dirs(
        self, leaders: Mapping[TopicPartition, int]
    ) -> dict[tuple[TopicPartition, int], int]:
        if self._admin is None:
            self._admin = KafkaAdminClient(**self._config)
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in leaders:
            topics[topic].append(partition)
        brokers = sorted(set(leaders.values()))
        responses = self._admin.describe_log_dirs(topic_partitions=dict(topics), brokers=brokers)
        if any(not response["log_dirs"] for response in responses):
            raise ClusterAuthorizationFailedError  # kafka-python drops the error code of an empty response
        return {
            (TopicPartition(topic["name"], part["partition_index"]), response["broker"]): int(
                part["partition_size"]
            )
            for response in responses
            for folder in response["log_dirs"]
            for topic in folder["topics"]
            for part in topic["partitions"]
            if not part["is_future_key"]  # a copy that is being moved to another disk
        }


def translate_to_kafka_python(client: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Translate librdkafka's configuration to kafka-python's names."""
    return {
        **client_config.to_kafka_python_config(client),
        "bootstrap_servers": str(client["bootstrap.servers"]).split(","),
        "client_id": str(client["client.id"]),
        "request_timeout_ms": int(timeout * 1000),
    }
