"""The partitioning setting: Iceberg's transforms, read once, each mistake named."""

from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.schema.partition_spec import Part, Partitioning, check_columns, parse


def test_every_transform_is_read() -> None:
    """Spaces, letters' case and nested columns do not matter; what is read can be shown again."""
    parts = parse("topic, Day( timestamp ),bucket(16,id) , truncate(4, a.b)").own
    assert parts == (
        Part("identity", "topic"),
        Part("day", "timestamp"),
        Part("bucket", "id", 16),
        Part("truncate", "a.b", 4),
    )
    assert ", ".join(map(str, parts)) == "topic, day(timestamp), bucket(16, id), truncate(4, a.b)"
    assert parse("identity(topic)").own == (Part("identity", "topic"),)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "day()",
        "day(3, at)",
        "bucket(id)",
        "bucket(0, id)",
        "week(at)",
        "a b",
        "day(at",
        "a-b",
        "a,,b",
    ],
)
def test_what_is_no_rule_is_named(rule: Any) -> None:
    """The error shows the rule and how to write one."""
    with pytest.raises(SettingError, match=r"lake\.partition.*day\(timestamp\), country"):
        parse(rule)


def test_one_rule_is_for_own_tables_a_mapping_for_those_it_names() -> None:
    """Fan-out and dead-letter tables are partitioned only where somebody said so."""
    assert parse(None) == Partitioning()
    everywhere = parse("topic")
    assert everywhere.of("lake.a", own=True) == (Part("identity", "topic"),)
    assert everywhere.of("lake.b", own=False) == ()
    named = parse({"lake.b": "hour(timestamp)"})
    assert named.of("lake.a", own=True) == ()
    assert named.of("lake.b", own=False) == (Part("hour", "timestamp"),)
    with pytest.raises(SettingError, match="is not a table name"):
        parse({"b": "topic"})


def test_a_column_that_the_rows_lack_is_named() -> None:
    """The error names the table, the field and the columns that there are."""
    check_columns("lake.t", parse("day(TIMESTAMP), a.b").own, ["timestamp", "a"])
    with pytest.raises(SettingError, match=r"lake\.t .*country.*a, timestamp"):
        check_columns("lake.t", parse("country").own, ["timestamp", "a"])
