"""Records into an Iceberg table, each exactly once, with a transform of your own.

python examples/lake.py localhost:9092 orders /tmp/warehouse
"""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.lake import LakeWriter


def paid_only(records: DataFrame) -> DataFrame:
    """Keep the records whose value begins with "paid"."""
    return records.where(f.col("value").cast("string").startswith("paid"))


def main(bootstrap: str, topic: str, warehouse: str, limit: int = 10) -> None:
    """Write the first `limit` records of a topic."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "example-lake",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    lake_config = {
        **config,
        "lake.warehouse": warehouse,
        "lake.table": "shop.{topic}",
        "lake.transform": "lake:paid_only",
        "batch.max.age": "5 s",
    }
    with Consumer(config) as consumer, LakeWriter(consumer, lake_config) as lake:
        consumer.subscribe([topic], on_assign=lake.on_assign, on_revoke=lake.on_revoke, on_lost=lake.on_lost)
        read = 0
        while read < limit:
            messages = consumer.consume(limit - read, timeout=0.5)
            lake.write(messages)
            read += len(messages)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: lake.py BOOTSTRAP TOPIC WAREHOUSE")
    main(*sys.argv[1:])
