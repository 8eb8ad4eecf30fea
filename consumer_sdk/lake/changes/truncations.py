"""TRUNCATE of a source table (Debezium's op `t`).

1. By default it is a dead letter: it has no key, so it is in any one partition, and the topic's other
   partitions may hold changes from before and after it.
2. With `lake.truncate: apply` it removes all rows of its topic. Each table then has one topic, of one
   partition: a batch of another one is refused, and any batch once the table has offsets of another one.
3. Of a batch, only the changes behind its last TRUNCATE count. What it removes is one key, that of all
   rows of the partition: so look-ups, commits and bridge reads are those of other changes.
"""

from collections.abc import Collection
from typing import Final

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.change_formats import RecognizedChanges
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.changes.keyed_changes import ChangeRows, KeyedChanges, reduce_changes
from trimtab.consumer_sdk.lake.model.untyped_arrow import Table, pc

_PARTITION_COLUMNS: Final = ("topic", "partition")
_REJECTED: Final = (
    "op t (TRUNCATE) is not applied: empty the table by hand if its rows must go, or set lake.truncate=apply "
    "for topics of one partition"
)


def reject_truncations(changes: RecognizedChanges) -> dict[int, str]:
    """Return the reason of each TRUNCATE, by its record."""
    return dict.fromkeys(changes.truncations, _REJECTED)


def check_single_partition(partitions: Collection[TopicPartition]) -> None:
    """Raise TableSchemaMismatchError unless these are one topic's partition 0."""
    strange = [p for p in partitions if p.partition] or sorted(partitions)[1:]
    if strange:
        raise TableSchemaMismatchError(
            "lake.truncate=apply needs topics of one partition, each with a table of its own, and got "
            f"partition {strange[0].partition} of {strange[0].topic}: a TRUNCATE cannot be ordered with the "
            "changes of other partitions. Omit lake.truncate. Nothing was written and no offset moved"
        )


def list_partitions(records: Table) -> list[TopicPartition]:
    """Return the partitions of records."""
    found = records.group_by(list(_PARTITION_COLUMNS), use_threads=False).aggregate([])
    return [TopicPartition(row["topic"], row["partition"]) for row in found.to_pylist()]


def apply_truncation(
    records: Table, recognized: RecognizedChanges, changes: ChangeRows, rules: KeyRules
) -> KeyedChanges:
    """Return the net changes behind the last TRUNCATE, which touches every row of the partition."""
    last = records.slice(recognized.truncations[-1], 1)
    behind = pc.greater(changes.rows.column("offset"), last.column("offset")[0])
    kept = ChangeRows(changes.rows.filter(behind), changes.deletes.filter(behind))
    upserts = reduce_changes(kept, rules.key_columns).upserts
    return KeyedChanges(upserts, last.select(list(_PARTITION_COLUMNS)), _PARTITION_COLUMNS)
