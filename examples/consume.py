"""Drop-in consumer: confluent-kafka's interface, partitions placed by load.

python examples/consume.py localhost:9092 orders
"""

import sys

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk import Consumer


def main(bootstrap: str, topic: str, limit: int = 10) -> None:
    """Print up to `limit` records of a topic."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "example-consume",
        "auto.offset.reset": "earliest",
        "trimtab.heuristic": "steady",
        "trimtab.capacity": "2.3 MB/s",
    }
    with Consumer(config) as consumer:
        consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: print("got", [p.partition for p in partitions]),
            on_revoke=lambda _, partitions: print("released", [p.partition for p in partitions]),
        )
        read = 0
        while read < limit:
            for message in consumer.consume(limit - read, timeout=1.0):
                print(message.partition(), message.offset(), message.value())
                read += 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: consume.py BOOTSTRAP TOPIC")
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass  # Ctrl-C ends the example
    except TrimtabError as error:
        sys.exit(str(error))
