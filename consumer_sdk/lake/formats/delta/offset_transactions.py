"""Offsets of a Delta table as `txn` actions: an app id for each partition, version = next offset."""

import json
import re
from typing import Final
from urllib.parse import quote, unquote

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

TXN_RETENTION_PROPERTY: Final = "delta.setTransactionRetentionDuration"  # drops offsets of idle partitions
_OUR_TXN: Final = re.compile(r"^SetTransaction\((trimtab/.*)", re.MULTILINE)
_OFFSET_TXN: Final = re.compile(r"trimtab/([^/,()]+)/([^/,()]+)/(0|[1-9][0-9]*),([0-9]+),")


def transaction_app_id(group: str, where: TopicPartition) -> str:
    """Return the app id of a partition's `txn` action."""
    return f"trimtab/{quote(group, safe='')}/{where.topic}/{where.partition}"  # a group may contain slashes


def find_advanced(offsets: CommittedOffsets, expected: CommittedOffsets) -> dict[str, int]:
    """Return the app ids of the partitions whose offsets are not the expected ones, with their offsets."""
    return {
        transaction_app_id(group, where): offset
        for group, partitions in sorted(offsets.groups.items())
        for where, offset in sorted(partitions.items())
        if expected.next_offset(group, where) != offset
    }


def parse_offset_transactions(text: str, table: str) -> CommittedOffsets:
    """Return the offsets of `txn` actions, a line each. Raises CommittedOffsetsLostError."""
    groups: dict[str, dict[TopicPartition, int]] = {}
    for txn in _OUR_TXN.findall(text):
        group, partition, offset = _parse_offset_txn(txn, table)
        groups.setdefault(group, {})[partition] = offset
    return CommittedOffsets(groups)


def _parse_offset_txn(text: str, table: str) -> tuple[str, TopicPartition, int]:
    found = _OFFSET_TXN.match(text)
    if found is None:
        raise CommittedOffsetsLostError(
            f"table {table}: its txn action {text[:120]!r} cannot be read as an offset; a newer Trimtab "
            "wrote it (upgrade this one) or another program did (write into a new table)"
        )
    group, topic, partition, offset = found.groups()
    return unquote(group), TopicPartition(topic, int(partition)), int(offset)


def parse_attempt(action: str) -> str | None:
    """Return the attempt id in a commit's first action, where Delta puts commitInfo; None if foreign."""
    try:
        attempt = json.loads(action)["commitInfo"]["userMetadata"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return attempt if isinstance(attempt, str) else None


def reject_txn_retention(table: str) -> CommittedOffsetsLostError:
    """Return the error for a table with TXN_RETENTION_PROPERTY."""
    return CommittedOffsetsLostError(
        f"table {table}: its property {TXN_RETENTION_PROPERTY} lets Delta drop the offsets of idle "
        "partitions, whose records would be written again: "
        f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{TXN_RETENTION_PROPERTY}')"
    )
