"""The assignor alone, in a plain kafka-python consumer: by load beside a sidecar, by lag without one.

python examples/plain_kafka_python.py localhost:9092 orders
"""

import sys

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.consumer_sdk import GroupView

GROUP = "example-kafka-python"


def main(bootstrap: str, topic: str, limit: int = 10) -> None:
    """Print up to `limit` records of a topic."""
    config = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    with GroupView(config) as view:
        # A plan of a sidecar takes precedence over the heuristic here.
        assignor = TrimtabAssignor("lag-aware", capacity="2.3 MB/s", view=view)
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            bootstrap_timeout_ms=10_000,
            partition_assignment_strategy=[assignor],
        )
        for read, record in enumerate(consumer, start=1):
            print(record.partition, record.offset, record.value)
            if read == limit:
                break
        consumer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: plain_kafka_python.py BOOTSTRAP TOPIC")
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass  # Ctrl-C ends it
    except KafkaError as error:
        sys.exit(f"{sys.argv[1]}: {error}; is a broker there?")
