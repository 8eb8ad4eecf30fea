"""Which writer `lake.file.writer: auto` is."""

from typing import Any

import pytest

from trimtab.consumer_sdk.lake.file_writers import resolve_file_writer

JSON = {"lake.decoder": "json", "lake.schema": "id INT"}


@pytest.mark.parametrize(
    ("given", "write", "resolved"),
    [
        ({}, "append", "auto"),
        ({"spark.master": "local[1]"}, "append", "auto"),
        ({"spark.master": "spark://host:7077"}, "append", "spark"),
        ({"spark.master": "k8s://https://host"}, "upsert", "spark"),
        ({"lake.transform": len}, "append", "spark"),
        ({"lake.partition": "topic"}, "append", "spark"),
        (JSON, "append", "spark"),
        (JSON, "upsert", "auto"),
    ],
)
def test_settings_that_need_spark_decide(given: dict[str, Any], write: str, resolved: str) -> None:
    """`auto` stays where nothing needs Spark, and then tables decide; a named writer stays always."""
    assert resolve_file_writer("auto", given, write) == resolved
    assert resolve_file_writer("spark", given, write) == "spark"
    assert resolve_file_writer("arrow", given, write) == "arrow"
