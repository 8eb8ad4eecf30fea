"""A consumer in a rack, which is assigned and fetches partitions with a replica there.

Start one in each rack. Brokers need broker.rack and replica.selector.class
(docs/rack-awareness.md):

    python examples/racks.py localhost:9092 orders a
"""

import sys

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk import Consumer


def main(bootstrap: str, topic: str, rack: str, limit: int = 10) -> None:
    """Print up to `limit` records of a topic."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "example-racks",
        "auto.offset.reset": "earliest",
        "client.rack": rack,
        "trimtab.heuristic": "steady:rack_cost=1",  # or, with trimtab[racks], "rack-aware"
    }
    with Consumer(config) as consumer:
        consumer.subscribe(
            [topic], on_assign=lambda _, got: print(f"rack {rack} reads", [p.partition for p in got])
        )
        read = 0
        while read < limit:
            for message in consumer.consume(limit - read, timeout=1.0):
                print(message.partition(), message.offset(), message.value())
                read += 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: racks.py BOOTSTRAP TOPIC RACK")
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass  # Ctrl-C ends it
    except TrimtabError as error:
        sys.exit(str(error))
