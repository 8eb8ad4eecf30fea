"""Drop-in consumer for asyncio: aiokafka's interface, partitions placed by load.

python examples/consume_async.py localhost:9092 orders
"""

import asyncio
import sys
from typing import Any

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk import AsyncConsumer


class Listener:
    """Prints the partitions that move."""

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Print what is read from now on."""
        print("got", sorted(p.partition for p in assigned))

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Print what is released; the next owner waits until this returns."""
        print("released", sorted(p.partition for p in revoked))


async def main(bootstrap: str, topic: str, limit: int = 10) -> None:
    """Print up to `limit` records of a topic."""
    consumer = AsyncConsumer(
        bootstrap_servers=bootstrap,
        group_id="example-consume-async",
        auto_offset_reset="earliest",
        trimtab_heuristic="steady",
        trimtab_capacity="2.3 MB/s",
    )
    consumer.subscribe([topic], listener=Listener())
    async with consumer:
        read = 0
        async for record in consumer:
            print(record.partition, record.offset, record.value)
            read += 1
            if read == limit:
                break


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: consume_async.py BOOTSTRAP TOPIC")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        pass  # Ctrl-C ends the example
    except (TrimtabError, RuntimeError) as error:  # Kafka's errors are RuntimeErrors
        sys.exit(str(error))
