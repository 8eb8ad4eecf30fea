"""Appends to an Iceberg table with as few requests to its store as Iceberg allows.

Iceberg has two: `newAppend` merges manifests once there are many, and afterwards loads the table and reads
its manifest list again to find what the merge has left behind; `newFastAppend` never merges, and saves
these three requests.
"""

from typing import Any, Final

from trimtab.consumer_sdk.lake.spark import jvm_errors

_MERGE_SETTING: Final = "commit.manifest.min-count-to-merge"
_DEFAULT_MERGED_MANIFESTS: Final = 100  # Iceberg's


def start_append(target: Any, table: Any) -> Any:
    """Start an append to `target`, Iceberg's table itself or a transaction of it."""
    return target.newAppend() if _merges_manifests(table) else target.newFastAppend()


def _merges_manifests(table: Any) -> bool:
    snapshot = table.currentSnapshot()
    if snapshot is None:
        return False
    try:  # the snapshot keeps the list, which the append needs in any case
        present = int(snapshot.allManifests(table.io()).size())
    except jvm_errors.JVM_ERRORS:
        return True  # expired meanwhile: the append refreshes the table, and decides or tells
    limit = table.properties().get(_MERGE_SETTING)
    return present + 1 >= int(limit or _DEFAULT_MERGED_MANIFESTS)
