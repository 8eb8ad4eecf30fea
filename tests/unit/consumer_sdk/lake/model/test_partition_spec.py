"""The partitioning setting: Iceberg's transforms, and an error for each mistake."""

from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.model.partition_spec import (
    PartitionField,
    PartitioningRules,
    check_partition_columns,
    parse_partitioning,
)


def test_every_transform_is_parsed() -> None:
    """Spaces and case do not matter, and the spec prints in one form."""
    with pytest.raises(SettingError, match=r"a\.b is a field of a struct"):
        parse_partitioning("topic, a.b")
    parts = parse_partitioning("topic, Day( timestamp ),bucket(16,id) , truncate(4, a.b)").topic_tables
    assert parts == (
        PartitionField("identity", "topic"),
        PartitionField("day", "timestamp"),
        PartitionField("bucket", "id", 16),
        PartitionField("truncate", "a.b", 4),
    )
    assert ", ".join(map(str, parts)) == "topic, day(timestamp), bucket(16, id), truncate(4, a.b)"
    assert parse_partitioning("identity(topic)").topic_tables == (PartitionField("identity", "topic"),)


@pytest.mark.parametrize(
    "setting",
    ["", "day()", "day(3, at)", "bucket(id)", "bucket(0, id)", "week(at)", "a b", "day(at", "a-b", "a,,b"],
)
def test_invalid_field_is_an_error(setting: Any) -> None:
    """The error shows the setting and a valid example."""
    with pytest.raises(SettingError, match=r"lake\.partition.*day\(timestamp\), country"):
        parse_partitioning(setting)


def test_spec_for_topic_tables_and_mapping() -> None:
    """Fan-out and dead-letter tables are partitioned only by a mapping that names them."""
    assert parse_partitioning(None) == PartitioningRules()
    everywhere = parse_partitioning("topic")
    assert everywhere.spec_for("lake.a", is_topic_table=True) == (PartitionField("identity", "topic"),)
    assert everywhere.spec_for("lake.b", is_topic_table=False) == ()
    named = parse_partitioning({"lake.b": "hour(timestamp)"})
    assert named.spec_for("lake.a", is_topic_table=True) == ()
    assert named.spec_for("lake.b", is_topic_table=False) == (PartitionField("hour", "timestamp"),)
    with pytest.raises(SettingError, match="is not a table name"):
        parse_partitioning({"b": "topic"})


def test_missing_column_is_an_error() -> None:
    """The error names the table, the field and the columns of the rows."""
    check_partition_columns(
        "lake.t", parse_partitioning("day(TIMESTAMP), truncate(2, a.b)").topic_tables, ["timestamp", "a"]
    )
    with pytest.raises(SettingError, match=r"lake\.t .*country.*a, timestamp"):
        check_partition_columns("lake.t", parse_partitioning("country").topic_tables, ["timestamp", "a"])


def test_a_column_named_as_the_partitions_is_an_error() -> None:
    """Of both formats in the same words; SQL ignores the case of names."""
    spec = parse_partitioning("day(ts)").topic_tables
    with pytest.raises(SettingError, match=r"lake\.t .*by day\(ts\): its rows have a column ts_day"):
        check_partition_columns("lake.t", spec, ["ts", "TS_Day"])
    check_partition_columns("lake.t", parse_partitioning("ts, bucket(2, ts)").topic_tables, ["ts", "ts_day"])
