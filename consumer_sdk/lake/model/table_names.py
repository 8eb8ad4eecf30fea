"""Table names of topics: a template such as "lake.{topic}", or an explicit mapping."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableNameCollisionError

DEFAULT_TABLE_TEMPLATE: Final = "lake.{topic}"
DEAD_LETTER_SUFFIX: Final = "_dead_letter"  # of tables that the sink alone makes
DEAD_LETTER_PROPERTY: Final = "trimtab.dead-letter"  # of the tables that it made; only they are replayed
_PLAIN_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def to_sql_identifier(topic: str) -> str:
    """Return a topic name as a SQL identifier that needs no quotes."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"t_{plain}" if plain[:1].isdigit() else plain


def dead_letter_table(table: str) -> str:
    """Return the name of a table's dead-letter table."""
    return table + DEAD_LETTER_SUFFIX


def is_dead_letter_table(table: str) -> bool:
    """Return whether a name is that of a dead-letter table; some catalogs ignore case."""
    return table.lower().endswith(DEAD_LETTER_SUFFIX)


def initial_properties(table: str) -> dict[str, str]:
    """Return the properties that the sink gives a table by its name."""
    return {DEAD_LETTER_PROPERTY: "true"} if is_dead_letter_table(table) else {}


def check_table_name(name: str, setting: str) -> str:
    """Return a name of the form namespace.name. Raises SettingError for any other."""
    parts = name.split(".")
    if len(parts) < 2 or not all(_PLAIN_IDENTIFIER.fullmatch(part) for part in parts):  # noqa: PLR2004 - two parts
        raise SettingError(
            f"{setting}: {name!r} is not a table name; write namespace.name with letters, "
            "digits and '_', like \"lake.orders\""
        )
    return name


def check_row_table_name(name: str, setting: str) -> str:
    """Return the name of a table of rows. Raises SettingError also for that of a dead-letter table."""
    if is_dead_letter_table(check_table_name(name, setting)):
        raise SettingError(
            f"{setting}: {name!r} ends in {DEAD_LETTER_SUFFIX!r}, as the dead-letter tables that the sink "
            "makes: choose another name"
        )
    return name


@dataclass(frozen=True, slots=True)
class TableNames:
    """Template and mapping of a configuration. Raises SettingError."""

    template: str = DEFAULT_TABLE_TEMPLATE
    mapping: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if "{topic}" not in self.template:
            raise SettingError(
                f'lake.table: {self.template!r} lacks "{{topic}}"; to write several topics to one '
                "table, list them in lake.tables"
            )
        check_row_table_name(self.template.replace("{topic}", "t"), "lake.table")
        for topic, table in self.mapping.items():
            check_row_table_name(table, f"lake.tables[{topic}]")

    def table_for(self, topic: str) -> str:
        """Return a topic's table."""
        return self.mapping.get(topic) or self.template.replace("{topic}", to_sql_identifier(topic))

    def check_collisions(self, topics: Iterable[str]) -> None:
        """Raise TableNameCollisionError if any of these topics cannot have its table (`check_topic`)."""
        by_table = defaultdict[str, list[str]](list)
        for topic in sorted(set(topics)):
            by_table[self.table_for(topic).lower()].append(topic)
        for sharing in by_table.values():
            for topic in sharing:
                self.check_topic(topic, sharing)

    def check_topic(self, topic: str, others: Iterable[str]) -> None:
        """Raise TableNameCollisionError if one of the others has a topic's table outside lake.tables.

        Also if the table has the name of another table's dead letters.
        """
        table = self.table_for(topic)
        if is_dead_letter_table(table):
            raise TableNameCollisionError(
                f"the topic {topic!r} maps to table {table!r}, which may hold the dead letters of "
                f"table {table[: -len(DEAD_LETTER_SUFFIX)]!r}: give it another one in lake.tables"
            )
        for other in sorted(set(others) - {topic}):
            # their rows would mix: "a.b" and "a-b" both become a_b; some catalogs ignore case
            if self.table_for(other).lower() == table.lower() and not {topic, other} <= self.mapping.keys():
                first, second = sorted((topic, other))
                raise TableNameCollisionError(
                    f"the topics {first!r} and {second!r} both map to table {table!r}: give each "
                    "its own in lake.tables, or list both there to share it"
                )
