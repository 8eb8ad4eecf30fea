"""The `add` actions of staged files, in the Delta protocol's JSON."""

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.model.interfaces import StagedFiles


def list_paths(folder: str, files: Iterable[str]) -> list[str]:
    """Return the paths of a table's files."""
    # the protocol escapes paths as URIs
    return [f"{folder}/{unquote(_parse_add(file)['path'])}" for file in files]


def summarize_files(attempt: str, files: tuple[str, ...]) -> StagedFiles:
    """Return the files with the number of their rows and bytes. Raises SettingError without statistics."""
    adds = list(map(_parse_add, files))
    return StagedFiles(attempt, files, sum(map(_count_rows, adds)), sum(int(add["size"]) for add in adds))


def _parse_add(file: str) -> Any:
    return json.loads(file)["add"]


def _count_rows(add: Any) -> int:
    if "stats" not in add:
        unset = "spark.databricks.delta.stats.collect=false leaves files without row counts"
        raise SettingError(f"{unset}, which the writer needs; omit it")
    return int(json.loads(add["stats"])["numRecords"])
