"""Topic → table: a template such as "lake.{topic}", or a mapping that says it outright.

A topic's dots, dashes and other signs become "_" in the template, and a leading digit gets a "t_"
before it, so that the name is plain in SQL. Two topics that come out alike are refused
(TableNameCollisionError): their rows would mix unasked. In the mapping two topics may share a table, since
somebody wrote it down.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableNameCollisionError

DEFAULT_TABLE_TEMPLATE: Final = "lake.{topic}"
DEAD_LETTER_SUFFIX: Final = "_dead_letter"
_PLAIN_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def to_sql_identifier(topic: str) -> str:
    """Return a topic's name as a plain SQL identifier."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"t_{plain}" if plain[:1].isdigit() else plain


def dead_letter_table(table: str) -> str:
    """Return the table for what cannot be decoded."""
    return table + DEAD_LETTER_SUFFIX


def check_table_name(name: str, setting: str) -> str:
    """Return a table's name if it is namespace.name in plain identifiers. Raises SettingError."""
    parts = name.split(".")
    if len(parts) < 2 or not all(_PLAIN_IDENTIFIER.fullmatch(part) for part in parts):  # noqa: PLR2004 - two parts
        raise SettingError(
            f"{setting}: {name!r} is not a table name; write namespace.name with letters, "
            "digits and '_', "
            'like "lake.orders"'
        )
    return name


@dataclass(frozen=True, slots=True)
class TableNames:
    """The rule of a configuration."""

    template: str = DEFAULT_TABLE_TEMPLATE
    mapping: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if "{topic}" not in self.template:
            raise SettingError(
                f'lake.table: {self.template!r} lacks "{{topic}}"; to send several topics '
                "to one table, name them "
                "in lake.tables"
            )
        check_table_name(self.template.replace("{topic}", "t"), "lake.table")
        for topic, table in self.mapping.items():
            check_table_name(table, f"lake.tables[{topic}]")

    def table_for(self, topic: str) -> str:
        """Return a topic's own table."""
        return self.mapping.get(topic) or self.template.replace("{topic}", to_sql_identifier(topic))

    def check_collisions(self, topics: Iterable[str]) -> None:
        """Raise TableNameCollisionError for two topics in a table that lake.tables does not name."""
        taken: dict[str, str] = {}
        for topic in sorted(set(topics)):
            table = self.table_for(topic)
            other = taken.setdefault(table.lower(), topic)
            if other != topic and not {topic, other} <= self.mapping.keys():
                raise TableNameCollisionError(
                    f"the topics {other!r} and {topic!r} would both go to table {table!r}: "
                    "give each its own in lake.tables, or name both there if they shall share it"
                )
