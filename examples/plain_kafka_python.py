"""The assignor alone, in a plain kafka-python consumer.

python examples/plain_kafka_python.py localhost:9092 orders
"""

import sys

from kafka import KafkaConsumer

from trimtab.assignor.clients.kafka_python import TrimtabAssignor


def main(bootstrap: str, topic: str, limit: int = 10) -> None:
    """Print up to `limit` records of a topic."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="example-kafka-python",
        auto_offset_reset="earliest",
        partition_assignment_strategy=[TrimtabAssignor("mwf", capacity="2.3 MB/s")],
    )
    for read, record in enumerate(consumer, start=1):
        print(record.partition, record.offset, record.value)
        if read == limit:
            break
    consumer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: plain_kafka_python.py BOOTSTRAP TOPIC")
    main(*sys.argv[1:])
