"""Values that try to end the sink: each is a row or a dead letter, and those beside them are rows."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fuzz.mutation import mutate
from support.lake.hostile_json import GOOD, HOSTILE
from trimtab.assignor.model import TopicPartition

P0 = TopicPartition("orders", 0)
COLUMNS = (
    "id BIGINT, n INT, d DOUBLE, f FLOAT, name STRING, at TIMESTAMP, day DATE, p DECIMAL(9, 2), b BINARY, "
    "t BOOLEAN, m MAP<STRING, INT>, a ARRAY<STRUCT<x: INT>>, s STRUCT<y: TIMESTAMP>"
)
JSON = {"lake_decoder": "json", "lake_schema": COLUMNS, "lake_flush_timeout": "200 s"}


@pytest.mark.spark
def test_no_json_value_ends_the_sink(writers: Callable[..., Any], spark: Any, namespace: str) -> None:
    """Depth, digits, times out of range, other encodings, long names, mutations: none fails Spark's job."""
    rng = Random(15)  # noqa: S311 - reproducible
    mutated = [mutate(GOOD, rng, 4000) for _ in range(600)]
    values: list[bytes | None] = [GOOD, *HOSTILE, *mutated, GOOD]
    consumer, writer = writers({P0: values}, **JSON)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(len(values)))
    writer.close()
    rows, letters = (
        [row.offset for row in spark.table(f"{namespace}.orders{end}").select("offset").collect()]
        for end in ("", "_dead_letter")
    )
    assert sorted(rows + letters) == list(range(len(values)))
    assert {0, len(values) - 1} <= set(rows)
    assert letters
