"""A folder for lake tables, the settings to write into it, and a reader of its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class LakeFolder:
    """Tables in a folder, written by one group."""

    path: Path
    bootstrap: str
    group: str

    def build_config(self, topics: Sequence[str], **settings: Any) -> dict[str, Any]:
        """Return the configuration of `trimtab ingest`; underscores in `settings` stand for dots."""
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "topics": list(topics),
            "auto.offset.reset": "earliest",
            "lake.warehouse": str(self.path),
            "lake.file.writer": "arrow",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def read(self, table: str, config: Mapping[str, Any]) -> Any:
        """Return the rows of a table and the records that it does not have yet, as a pyarrow.Table.

        Raises the errors of `trimtab.consumer_sdk.lake.read`; needs the extras `lake` and `read`.
        """
        from trimtab.consumer_sdk.lake import read  # noqa: PLC0415 - Spark is slow to import, and an extra

        return read(table, config).to_arrow()
