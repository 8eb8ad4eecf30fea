"""Commits of writers whose clocks are apart.

Iceberg dates a snapshot by its writer's clock and the metadata by the clock of whoever writes them, and
refuses a date that is more than a minute before the last one. So a writer whose clock is behind could not
commit until it has caught up, nor one whose clock is ahead of a REST catalog's. Such a commit is tried
again with the date of the metadata that it follows.
"""

import json
import logging
from typing import Any, Final

log = logging.getLogger("trimtab.lake")

_BRANCH: Final = "main"


def commit_dated(table: Any, update: Any, root: Any, date_ms: int | None = None) -> None:
    """Commit a snapshot as `update.commit()` does, but once, and with the date of the table's metadata.

    `table` and `update` are Iceberg's own objects, `root` the JVM's packages; `date_ms` is another date.
    """
    iceberg = root.org.apache.iceberg
    snapshot = update.apply()  # refreshes the table, validates, and writes the manifests
    operations = table.operations()
    base = operations.current()
    date_ms = int(base.lastUpdatedMillis()) if date_ms is None else date_ms
    document = json.loads(str(iceberg.SnapshotParser.toJson(snapshot))) | {"timestamp-ms": date_ms}
    builder = iceberg.TableMetadata.buildFrom(base)
    _date_metadata(builder, root.java.lang.Long.valueOf(str(date_ms)))
    dated = iceberg.SnapshotParser.fromJson(json.dumps(document))
    operations.commit(base, builder.setBranchSnapshot(dated, _BRANCH).build())


def warn_of_clocks(name: str) -> None:
    """Log that a table's writers should set their clocks."""
    log.warning(
        "table %s: the clocks of its writers, or of its catalog, are more than a minute apart; this commit "
        "gets the date of the last one: synchronize them (NTP)",
        name,
    )


def _date_metadata(builder: Any, date: Any) -> None:
    # Iceberg has no public way to it.
    field = builder.getClass().getDeclaredField("lastUpdatedMillis")
    field.setAccessible(True)
    field.set(builder, date)
