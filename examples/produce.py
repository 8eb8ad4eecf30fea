"""Make a topic and write records into it, for the other examples.

trimtab broker --port 9092          # in another terminal, if there is no broker
python examples/produce.py localhost:9092 orders
"""

import sys
from contextlib import suppress

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic


def main(bootstrap: str, topic: str, count: int = 100) -> None:
    """Make the topic with four partitions unless it exists, and write numbered records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, f"paid order {number}".encode(), key=str(number))
    producer.flush()
    print(count, "records in", topic)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: produce.py BOOTSTRAP TOPIC")
    with suppress(KeyboardInterrupt):  # Ctrl-C ends it
        main(*sys.argv[1:])
