"""Values that try to end the sink: each is a row or a dead letter, and those beside them are rows."""

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hostile_json import GOOD, HOSTILE, HUGE_DECIMALS

from fuzz.mutation import mutate
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.decoding.decimal_numbers import may_have_huge_decimal
from trimtab.consumer_sdk.lake.decoding.spark_decoders import decode_values
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.spark_lake import SparkLake

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


@pytest.mark.spark
def test_a_huge_decimal_is_a_dead_letter(iceberg: SparkLake) -> None:
    """In seconds; texts and names like it are kept, and long values are no trouble."""
    kept = [
        b'{"p": "1e00002", "name": "1e99999999", "more": [1e-999, 1], "prices": {"1e99999999": 1}}',
        b'{"p": 1, "name": "\\": 1e99999999,sha:12e3456", "1e99999999": "1e99999999"}',
        b'{"p": 1, "name": "%s"}' % (b"1," * 500_000),
        b'{"p": 1, "name": "%s"}' % (b"9" * 1_000_000),
        b'{"p": 1, "x": [%s1]}' % (b"1e1," * 250_000),
    ]
    columns = "p DECIMAL(9, 2), name STRING, more ARRAY<DECIMAL(9, 2)>, prices MAP<STRING, DECIMAL(9, 2)>"
    columns += ", lines ARRAY<STRUCT<p: DECIMAL(9, 2)>>"
    values = pa.array([*kept, *HUGE_DECIMALS], pa.binary())
    records = pa.table({"offset": range(len(values)), "value": values})
    records = pa.concat_tables([RECORD_SCHEMA.empty_table(), records], promote_options="default")
    decoded = decode_values(iceberg.to_spark_frame(records), columns)
    assert {row.offset for row in decoded.rows.select("offset").collect()} == {*range(len(kept))}
    assert decoded.dead_letters is not None
    reasons = [row.error for row in decoded.dead_letters.orderBy("offset").collect()]
    fits = f"does not fit the schema {columns}"
    assert reasons == ["not one JSON value" if value[-1:] != b"}" else fits for value in HUGE_DECIMALS]


def test_every_huge_decimal_is_suspect() -> None:
    """In other batches Spark does not look for them; nulls are none."""
    assert all(may_have_huge_decimal(pa.array([None, value], pa.binary())) for value in HUGE_DECIMALS)
    plain = [None, b'{"p": 12345.67, "name": "price 12 e-mail 1234", "id": 1234567890123}', b'{"p": 1e999}']
    assert not may_have_huge_decimal(pa.array(plain, pa.binary()))
