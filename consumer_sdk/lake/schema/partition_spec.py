"""How the tables that the sink makes are partitioned: `day(timestamp), country`.

The words are Iceberg's transforms: a column alone, year, month, day or hour of a time, bucket(n,
column), truncate(n, column). Written once, the rule is for every topic's own table; written as a
mapping of table to rule, it is for the tables that are named, fan-out tables too. It counts when a
table is made: one that is there already keeps the partitioning that it has.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.schema.table_names import check_table_name

PARTITION_SETTING: Final = "lake.partition"
TIME_TRANSFORMS: Final = ("year", "month", "day", "hour")
WIDTH_TRANSFORMS: Final = ("bucket", "truncate")
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
    """The rule of a configuration: `topic_tables` for every topic's own table, `by_table` by table."""

    topic_tables: PartitionSpec = ()
    by_table: Mapping[str, PartitionSpec] = field(default_factory=dict[str, PartitionSpec])

    def spec_for(self, table: str, *, is_topic_table: bool) -> PartitionSpec:
        """Return how a table is partitioned when it is made; empty: not at all."""
        return self.by_table.get(table) or (self.topic_tables if is_topic_table else ())


def parse_partitioning(setting: Any) -> PartitioningRules:
    """Read the setting: nothing, a rule, or a mapping of table to rule. Raises SettingError."""
    if setting is None:
        return PartitioningRules()
    if isinstance(setting, Mapping):
        named = {
            check_table_name(str(table), PARTITION_SETTING): _parse_spec(rule)
            for table, rule in setting.items()
        }
        return PartitioningRules(by_table=named)
    return PartitioningRules(topic_tables=_parse_spec(setting))


def check_partition_columns(table: str, spec: PartitionSpec, columns: Iterable[str]) -> None:
    """Raise SettingError if a table is to be partitioned by a column that its rows lack."""
    have = sorted(columns)
    known = {name.lower() for name in have}
    for part in spec:
        if part.column.partition(".")[0].lower() not in known:
            raise SettingError(
                f"{PARTITION_SETTING}: table {table} cannot be partitioned by {part}: its rows have no "
                f"column {part.column}, but {', '.join(have)}"
            )


def _parse_spec(rule: Any) -> PartitionSpec:
    text = str(rule)
    parts: list[PartitionField] = []
    at = 0
    while at < len(text) or not parts:
        found = _PARTITION_FIELD.match(text, at)
        if found is None:
            raise SettingError(
                f"{PARTITION_SETTING}: {text!r} is not a list of partition fields; {_PARTITION_ADVICE}"
            )
        parts.append(_parse_field(found, text))
        at = found.end()
    return tuple(parts)


def _parse_field(match: "re.Match[str]", text: str) -> PartitionField:
    if match["column"]:
        return PartitionField("identity", match["column"])
    transform, width = match["transform"].lower(), match["width"]
    if transform == "identity" and width is None:
        return PartitionField(transform, match["of"])
    fits = transform in (TIME_TRANSFORMS if width is None else WIDTH_TRANSFORMS) and width != "0"
    if not fits:
        raise SettingError(
            f"{PARTITION_SETTING}: {match[0].strip(' ,')!r} in {text!r} is no rule; {_PARTITION_ADVICE}"
        )
    return PartitionField(transform, match["of"], None if width is None else int(width))
