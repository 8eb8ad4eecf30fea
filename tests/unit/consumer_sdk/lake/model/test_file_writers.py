"""Which writer `lake.file.writer: auto` is."""

from typing import Any

import pytest

from trimtab.consumer_sdk.lake.model.file_writers import resolve_file_writer, resolve_on_master


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ({}, "auto"),
        ({"spark.sql.shuffle.partitions": 1}, "auto"),
        ({"spark.sql.parquet.compression.codec": "gzip"}, "spark"),
        ({"spark.hadoop.parquet.encryption.uniform.key": "k"}, "spark"),
        ({"lake.transform": None}, "auto"),
        ({"lake.transform": len}, "spark"),
        ({"lake.partition": "topic"}, "spark"),
        ({"lake.decoder": "json", "lake.schema": "id INT"}, "auto"),  # the schema decides
    ],
)
def test_settings_that_need_spark_decide(given: dict[str, Any], resolved: str) -> None:
    """`auto` stays where nothing needs Spark, and then tables decide; a named writer stays always."""
    assert resolve_file_writer("auto", given) == resolved
    assert resolve_file_writer("spark", given) == "spark"
    assert resolve_file_writer("arrow", given) == "arrow"


@pytest.mark.parametrize(
    ("master", "resolved"),
    [
        ("local", "auto"),
        ("local[*]", "auto"),
        ("local-cluster[2,1,512]", "spark"),
        ("spark://host:7077", "spark"),
        ("yarn", "spark"),
        ("k8s://https://host", "spark"),
    ],
)
def test_executors_write_where_there_are_some(master: str, resolved: str) -> None:
    """Also those of a session that the application has started; a named writer stays."""
    assert resolve_on_master("auto", master) == resolved
    assert resolve_on_master("arrow", master) == "arrow"
