"""Make a topic and write records into it, for the other examples.

trimtab broker --port 9092          # in another terminal, if there is no broker
python examples/produce.py localhost:9092 orders
"""

import sys

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic


def main(bootstrap: str, topic: str, count: int = 100) -> None:
    """Make the topic with four partitions unless it exists, and write numbered records."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    if topic not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        value = f"{'paid' if number % 10 else 'open'} order {number}"
        producer.produce(topic, value.encode(), key=str(number))
    producer.flush()
    print(count, "records in", topic)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: produce.py BOOTSTRAP TOPIC")
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass  # Ctrl-C ends it
    except KafkaException as error:
        sys.exit(f"{sys.argv[1]}: {error.args[0].str()}; is a broker there?")
