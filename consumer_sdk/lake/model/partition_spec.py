"""Partitioning of new tables: `day(timestamp), country`.

Fields are Iceberg's transforms: a column; year, month, day or hour of a time; bucket(n, column);
truncate(n, column). A single spec applies to every topic table; a mapping of table to spec applies
to the listed tables, fan-out tables included. Existing tables keep their partitioning.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.model.table_names import check_table_name

PARTITION_SETTING: Final = "lake.partition"
TIME_TRANSFORMS: Final = ("year", "month", "day", "hour")
WIDTH_TRANSFORMS: Final = ("bucket", "truncate")
# Texts that a Delta table cannot keep as partition values (`delta.partition_values`), beside those with NUL.
UNSTORABLE_TEXTS: Final = ("", "__HIVE_DEFAULT_PARTITION__")
UNSTORABLE_REASON: Final = "is no partition value of a Delta table, which would read it as null"
_PARTITION_ADVICE: Final = (
    "write columns, or year, month, day, hour(column), bucket(n, column), truncate(n, column), "
    'like "day(timestamp), country"'
)
_PARTITION_FIELD: Final = re.compile(
    r"""\s* (?: (?P<transform>[a-z]+) \( \s* (?: (?P<width>\d+) \s*,\s* )? (?P<of>[\w.]+) \s* \)
    | (?P<column>[\w.]+) ) \s* (?:,|$)""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One partition field; `transform` is "identity" for the column itself, `width` n or None."""

    transform: str
    column: str
    width: int | None = None

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        width = "" if self.width is None else f"{self.width}, "
        return f"{self.transform}({width}{self.column})"


PartitionSpec: TypeAlias = tuple[PartitionField, ...]


@dataclass(frozen=True, slots=True)
class PartitioningRules:
    """Specs of a configuration: one for every topic table, and specs of single tables."""

    topic_tables: PartitionSpec = ()
    by_table: Mapping[str, PartitionSpec] = field(default_factory=dict[str, PartitionSpec])

    def spec_for(self, table: str, *, is_topic_table: bool) -> PartitionSpec:
        """Return the spec of a new table; empty for no partitioning."""
        return self.by_table.get(table) or (self.topic_tables if is_topic_table else ())


def parse_partitioning(setting: Any) -> PartitioningRules:
    """Parse the setting: None, a spec, or a mapping of table to spec. Raises SettingError."""
    if setting is None:
        return PartitioningRules()
    if isinstance(setting, Mapping):
        specs = {check_table_name(str(t), PARTITION_SETTING): _parse_spec(s) for t, s in setting.items()}
        return PartitioningRules(by_table=specs)
    return PartitioningRules(topic_tables=_parse_spec(setting))


def check_partition_columns(table: str, spec: PartitionSpec, columns: Iterable[str]) -> None:
    """Raise SettingError if the rows lack a column of the spec, or have one named as its partitions."""
    have = sorted(columns)
    known = {name.lower() for name in have}  # SQL ignores the case of names
    for part in spec:
        if part.column.partition(".")[0].lower() not in known:  # a nested field: the struct must exist
            raise SettingError(
                f"{PARTITION_SETTING}: table {table} cannot be partitioned by {part}: its rows "
                f"have no column {part.column}, but {', '.join(have)}"
            )
        partition = f"{part.column}_{part.transform}".lower()
        if part.transform in TIME_TRANSFORMS and partition in known:
            raise SettingError(
                f"{PARTITION_SETTING}: table {table} cannot be partitioned by {part}: its rows have a column "
                f"{partition}, which is the name of the partitions. Rename it in a transform (lake.transform)"
            )


def _parse_spec(setting: Any) -> PartitionSpec:
    text = str(setting)
    parts: list[PartitionField] = []
    at = 0
    while at < len(text) or not parts:
        match = _PARTITION_FIELD.match(text, at)
        if match is None:
            raise SettingError(f"{PARTITION_SETTING}: {text!r} is no list of fields; {_PARTITION_ADVICE}")
        parts.append(_parse_field(match, text))
        at = match.end()
    return tuple(parts)


def _parse_field(match: "re.Match[str]", text: str) -> PartitionField:
    if match["column"]:
        return _check_field(PartitionField("identity", match["column"]))
    transform = match["transform"].lower()
    width = match["width"]
    if transform == "identity" and width is None:
        return _check_field(PartitionField(transform, match["of"]))
    if width == "0" or transform not in (TIME_TRANSFORMS if width is None else WIDTH_TRANSFORMS):
        wrong = match[0].strip(" ,")
        raise SettingError(f"{PARTITION_SETTING}: {wrong!r} in {text!r} is no field; {_PARTITION_ADVICE}")
    return PartitionField(transform, match["of"], None if width is None else int(width))


def _check_field(part: PartitionField) -> PartitionField:
    """Return a field that is a column. Raises SettingError for one within a struct."""
    if "." in part.column:
        raise SettingError(
            f"{PARTITION_SETTING}: {part.column} is a field of a struct, and Iceberg's readers and "
            "compactions take a struct that is null for one with a null in that field: write truncate(n, …) "
            "or bucket(n, …) of it, or partition by a column"
        )
    return part
