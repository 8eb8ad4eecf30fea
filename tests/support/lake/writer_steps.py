"""Steps of LakeWriter at which fault injection kills the process, in order of occurrence."""

from typing import Final

FLUSH_STEPS: Final = (
    "begun",  # nothing is written
    "staged",  # the topic table's files are written and not committed
    "side-tables-committed",
    "committed",  # the topic table has the batch
    "offsets-committed",  # Kafka has the offsets
)
REBALANCE_STEPS: Final = (
    "assigning",  # the offsets of the new partitions are unknown
    "assigned",
    "revoking",
    "flushed",  # the last batches are committed or given up
    "revoked",  # Kafka has the offsets; the partitions may move
    "draining",  # close() has begun
    "drained",
)
