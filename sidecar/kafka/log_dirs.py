"""Sizes of leader replicas on the brokers' disks (DescribeLogDirs), by kafka-python's admin client.

confluent-kafka does not offer this request. It needs the cluster-level permission Describe.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import ClusterAuthorizationFailedError, KafkaError

from trimtab.assignor.model import TopicPartition
from trimtab.common.kafka_security import connection
from trimtab.sidecar.kafka.broker_client import PartitionOffsets


class LogDirsClient:
    """Asks every leader for the size of its replicas.

    A partition whose leader changed is left out once: the new replica's size is another reading.
    """

    def __init__(self, client: Mapping[str, Any], timeout: float) -> None:
        self._config = translate_to_kafka_python(client, timeout)
        self._admin: Any = None  # its methods come from mix-ins that checkers do not see
        self._previous_leaders: Mapping[TopicPartition, int] = {}

    def fetch_replica_sizes(self, leaders: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """Return bytes of each partition's leader replica; what did not answer is absent."""
        before, self._previous_leaders = self._previous_leaders, dict(leaders)
        same = {p: b for p, b in leaders.items() if before.get(p, b) == b and b >= 0}
        try:
            answered = self._describe_log_dirs(same)
        except (KafkaError, OSError) as error:
            self.close()
            denied = isinstance(error, ClusterAuthorizationFailedError)
            cure = "; grant Describe on cluster" if denied else ""
            return PartitionOffsets({}, (f"log directories: {type(error).__name__}: {error}{cure}",))
        return PartitionOffsets({p: size for (p, broker), size in answered.items() if same[p] == broker})

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
        answers = self._admin.describe_log_dirs(
            topic_partitions=dict(topics), brokers=sorted(set(leaders.values()))
        )
        if any(not answer["log_dirs"] for answer in answers):  # its error code is not passed on
            raise ClusterAuthorizationFailedError
        return {
            (TopicPartition(topic["name"], part["partition_index"]), answer["broker"]): int(
                part["partition_size"]
            )
            for answer in answers
            for folder in answer["log_dirs"]
            for topic in folder["topics"]
            for part in topic["partitions"]
            if not part["is_future_key"]
        }


def translate_to_kafka_python(client: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Translate librdkafka's configuration to kafka-python's names."""
    return {
        **connection.to_kafka_python_config(client),
        "bootstrap_servers": str(client["bootstrap.servers"]).split(","),
        "client_id": str(client["client.id"]),
        "request_timeout_ms": int(timeout * 1000),
    }
