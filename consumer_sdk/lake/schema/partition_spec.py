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
from trimtab.consumer_sdk.lake.schema.table_names import check_table

SETTING: Final = "lake.partition"
TIMES: Final = ("year", "month", "day", "hour")
WIDTHS: Final = ("bucket", "truncate")
_ADVICE: Final = (
    "write columns, or year, month, day, hour(column), bucket(n, column), truncate(n, column), "
    'like "day(timestamp), country"'
)
_PART: Final = re.compile(
    r"""\s* (?: (?P<transform>[a-z]+) \( \s* (?: (?P<width>\d+) \s*,\s* )? (?P<of>[\w.]+) \s* \)
    | (?P<column>[\w.]+) ) \s* (?:,|$)""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One partition field; `transform` is "identity" for the column itself, `width` n or None."""

    transform: str
    column: str
    width: int | None = None

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        width = "" if self.width is None else f"{self.width}, "
        return f"{self.transform}({width}{self.column})"


Parts: TypeAlias = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The rule of a configuration: `own` for every topic's own table, `named` by table."""

    own: Parts = ()
    named: Mapping[str, Parts] = field(default_factory=dict[str, Parts])

    def of(self, table: str, *, own: bool) -> Parts:
        """Return how a table is partitioned when it is made; empty: not at all."""
        return self.named.get(table) or (self.own if own else ())


def parse(setting: Any) -> Partitioning:
    """Read the setting: nothing, a rule, or a mapping of table to rule. Raises SettingError."""
    if setting is None:
        return Partitioning()
    if isinstance(setting, Mapping):
        named = {check_table(str(table), SETTING): _parts(rule) for table, rule in setting.items()}
        return Partitioning(named=named)
    return Partitioning(own=_parts(setting))


def check_columns(table: str, parts: Parts, columns: Iterable[str]) -> None:
    """Raise SettingError if a table is to be partitioned by a column that its rows lack."""
    have = sorted(columns)
    known = {name.lower() for name in have}
    for part in parts:
        if part.column.partition(".")[0].lower() not in known:
            raise SettingError(
                f"{SETTING}: table {table} cannot be partitioned by {part}: its rows have no "
                f"column {part.column}, but {', '.join(have)}"
            )


def _parts(rule: Any) -> Parts:
    text = str(rule)
    parts: list[Part] = []
    at = 0
    while at < len(text) or not parts:
        found = _PART.match(text, at)
        if found is None:
            raise SettingError(f"{SETTING}: {text!r} is not a list of partition fields; {_ADVICE}")
        parts.append(_part(found, text))
        at = found.end()
    return tuple(parts)


def _part(found: "re.Match[str]", text: str) -> Part:
    if found["column"]:
        return Part("identity", found["column"])
    transform, width = found["transform"].lower(), found["width"]
    if transform == "identity" and width is None:
        return Part(transform, found["of"])
    fits = transform in (TIMES if width is None else WIDTHS) and width != "0"
    if not fits:
        raise SettingError(f"{SETTING}: {found[0].strip(' ,')!r} in {text!r} is no rule; {_ADVICE}")
    return Part(transform, found["of"], None if width is None else int(width))
