"""JSON parsed by Arrow gives the rows and dead letters of Spark's parser."""

import logging
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from json_values import COLUMNS, draw_columns, list_certain, list_mutated, list_random_floats, list_values
from pyspark.sql import SparkSession

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.decoding import arrow_json
from trimtab.consumer_sdk.lake.decoding.arrow_json import (
    ArrowJsonDecoder,
    UnprovenJsonError,
    create_arrow_json_decoder,
    parse_certain_objects,
)
from trimtab.consumer_sdk.lake.decoding.spark_decoders import build_frame, decode_values
from trimtab.consumer_sdk.lake.decoding.topic_decoders import TopicDecoders
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_COLUMNS, RECORD_SCHEMA
from trimtab.consumer_sdk.lake.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

pytestmark = pytest.mark.spark

P0 = TopicPartition("orders", 0)
MB = 1_000_000
ICEBERG, DELTA = ("iceberg", "iceberg_arrow"), ("delta", "delta_arrow")
ZONES = ["UTC", "Europe/Berlin", "America/New_York"]


@pytest.fixture
def write(config: Callable[..., Any], fakes: Any, namespace: str) -> Iterator[Callable[..., Any]]:
    """Write values in one batch with a lake; return the rows, the dead letters, and the columns of both."""
    made: list[LakeWriter] = []

    def run(
        lake: SparkLake, file_writer: str, values: list[bytes | None], columns: str = COLUMNS
    ) -> list[Any]:
        table = f"{namespace}.by_{file_writer}"
        settings = config(
            lake_decoder="json",
            lake_schema=columns,
            lake_tables={"orders": table},
            lake_file_writer=file_writer,
            lake_flush_timeout="200 s",
        )
        consumer = fakes.Consumer({P0: values})
        writer = LakeWriter(consumer, settings, lake=lake)
        made.append(writer)
        consumer.assign(writer, P0)
        writer.write(consumer.consume(len(values)))
        writer.close()
        tables = [lake.spark.table(f"{table}{end}") for end in ("", "_dead_letter")]
        return [*(index_rows(found.toArrow()) for found in tables), *(found.schema for found in tables)]

    yield run
    for writer in made:
        writer.__exit__(RuntimeError, None, None)


def build_records(values: Sequence[bytes | None]) -> Any:
    """Return records with these values."""
    columns = {"offset": range(len(values)), "value": pa.array(values, pa.binary())}
    return pa.concat_tables([RECORD_SCHEMA.empty_table(), pa.table(columns)], promote_options="default")


def decode(spark: SparkSession, file_writer: str, values: Sequence[bytes | None]) -> list[Any]:
    """Return tables of the rows and of the dead letters."""
    records = build_records(values)
    if file_writer == "arrow":
        decoded = create_arrow_json_decoder(COLUMNS, spark, MB).decode_batch(records)
        return [decoded.rows, decoded.dead_letters]
    frames: Any = decode_values(build_frame(spark, records), COLUMNS)
    return [frames.rows.toArrow(), frames.dead_letters.toArrow()]


def index_rows(table: Any, first_column: int = 0) -> dict[int, str]:
    """Return rows as text by offset: it tells 0.0 from -0.0, and NaN equals itself."""
    columns = table.select(range(first_column, table.num_columns))
    return dict(zip(table.column("offset").to_pylist(), list_texts(columns), strict=True))


def list_texts(table: Any) -> list[str]:
    """Return rows as text, with numbers for times: Python has none beyond the year 9999."""
    fields = [field.with_type(replace_times(field.type)) for field in table.schema]
    return [repr([*row.values()]) for row in table.cast(pa.schema(fields)).to_pylist()]


def replace_times(kind: Any) -> Any:
    """Return a type with numbers for times, also nested ones."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(replace_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(replace_times(kind.value_type))
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def find_certain(values: Sequence[bytes], decoder: ArrowJsonDecoder) -> tuple[list[int], Any]:
    """Return the places of the values that Arrow parses if each is alone, and their structs."""
    kind, in_utc = pa.struct(list(decoder.schema)), decoder.zoneless_is_utc
    alone = [parse_certain_objects(pa.array([value]), kind, zoneless_is_utc=in_utc) for value in values]
    places = [at for at, (_, uncertain) in enumerate(alone) if not uncertain.size]
    return places, pa.concat_arrays([alone[at][0] for at in places])


@pytest.fixture
def zone(request: pytest.FixtureRequest, iceberg: SparkLake, delta: SparkLake) -> Iterator[str]:
    """Set the time zone of both sessions, which all tests share."""
    name = "spark.sql.session.timeZone"
    for lake in (iceberg, delta):
        lake.spark.conf.set(name, request.param)
    yield request.param
    for lake in (iceberg, delta):
        lake.spark.conf.set(name, "UTC")


@pytest.mark.parametrize(
    ("lanes", "zone", "step"),
    [
        (ICEBERG, "America/New_York", 16),
        *(
            pytest.param(lanes, name, 1, marks=pytest.mark.slow)
            for lanes in (ICEBERG, DELTA)
            for name in ZONES
        ),
    ],
    indirect=["zone"],
)
def test_both_writers_write_the_same(
    lanes: tuple[str, str], zone: str, step: int, request: pytest.FixtureRequest, write: Callable[..., Any]
) -> None:
    """Rows, and dead letters with their reasons, of hostile values, into columns of the same types."""
    assert zone in ZONES
    by_spark, by_arrow = (request.getfixturevalue(name) for name in lanes)
    values = list_values()[::step]
    expected = write(by_spark, "spark", values)
    assert len(expected[0]) + len(expected[1]) == len(values)
    assert write(by_arrow, "arrow", values) == expected


@pytest.mark.parametrize(
    ("seed", "step"), [(0, 16), *(pytest.param(n, 1, marks=pytest.mark.slow) for n in range(33))]
)
def test_a_value_that_arrow_parses_alone_is_as_spark_parses_it(
    iceberg: SparkLake, seed: int, step: int
) -> None:
    """None hides behind one that sends both to Spark. A whole batch is equal, too, in any time zone."""
    rng, spark = Random(seed), iceberg.spark.newSession()  # noqa: S311 - reproducible
    spark.conf.set("spark.sql.session.timeZone", ZONES[seed % len(ZONES)])
    values = [value for value in list_values()[::step] if value is not None]
    if seed >= len(ZONES):
        values = [*list_mutated(rng, 2000), *list_random_floats(rng)]
    by_spark, by_arrow = (decode(spark, name, values) for name in ("spark", "arrow"))
    assert [*map(index_rows, by_arrow)] == [*map(index_rows, by_spark)]
    places, structs = find_certain(values, create_arrow_json_decoder(COLUMNS, spark, MB))
    expected = index_rows(by_spark[0], len(RECORD_COLUMNS))
    found = zip(places, list_texts(pa.Table.from_struct_array(structs)), strict=True)
    assert [(values[at], text) for at, text in found if text != expected.get(at)] == []
    assert len(places) > len(values) / 6


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 31))])
def test_any_schema_is_read_as_spark_reads_it(iceberg: SparkLake, seed: int) -> None:
    """Types within one another as chance has them; most values fit, some have a part that does not."""
    rng, spark = Random(seed), iceberg.spark.newSession()  # noqa: S311 - reproducible
    spark.conf.set("spark.sql.session.timeZone", ZONES[seed % len(ZONES)])
    ddl, draw = draw_columns(rng)
    records = build_records([draw(rng).encode() for _ in range(500)])
    frames = decode_values(build_frame(spark, records), ddl)
    decoded = create_arrow_json_decoder(ddl, spark, MB).decode_batch(records)
    assert index_rows(decoded.rows) == index_rows(frames.rows.toArrow())
    assert frames.dead_letters is not None
    letters = frames.dead_letters.toArrow()
    assert decoded.dead_letters is not None or not letters.num_rows
    if decoded.dead_letters is not None:
        assert index_rows(decoded.dead_letters) == index_rows(letters)


def test_usual_values_need_no_spark(iceberg: SparkLake) -> None:
    """Not one of them, in a batch of many; a timestamp without a zone needs a session in UTC."""
    decoder = create_arrow_json_decoder(COLUMNS, iceberg.spark, MB)
    values, kind = pa.array(list_certain(5000)), pa.struct(list(decoder.schema))
    assert not parse_certain_objects(values, kind, zoneless_is_utc=True)[1].size
    assert parse_certain_objects(values, kind, zoneless_is_utc=False)[1].size == 5000
    rng = Random(1)  # noqa: S311 - reproducible
    digits = pa.array([b'{"name": "%s"}' % rng.randbytes(1000).hex().encode() for _ in range(2000)])
    assert not parse_certain_objects(digits, kind, zoneless_is_utc=True)[1].size


@pytest.mark.parametrize("file_writer", ["arrow", "auto"])
def test_batches_for_spark_are_not_tried_again(
    iceberg: SparkLake,
    config: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    file_writer: str,
) -> None:
    """After a batch of which Arrow parsed little, Spark parses the next ones whole, but no other topic's."""
    monkeypatch.setattr(arrow_json, "_BATCHES_BY_SPARK", 2)
    assert iceberg.spark
    schema = {"lake_decoder": "json", "lake_schema": "id BIGINT, name STRING"}
    decoders = TopicDecoders(config(**schema, lake_file_writer=file_writer))
    records = build_records([b'{"id": 1, "name": 5}'] * 1000)

    def decode_batch(topic: str) -> Any:
        return decoders.decoder_for(topic)(records, lambda same: same).rows

    with caplog.at_level(logging.INFO, logger="trimtab.lake"):
        frames = [decode_batch("odd") for _ in range(4)]
        of_spark = [not isinstance(frame, pa.Table) for frame in frames]
        assert of_spark == [False, *[file_writer == "auto"] * 2, False]
        assert isinstance(decode_batch("other"), pa.Table)
    tried = [line.partition(":")[0] for line in caplog.messages if "all of the next 2 batches" in line]
    assert tried == ["topic odd", "topic odd", "topic other"]  # the first and the fourth batch of the odd one
    tables = [frame.toArrow() if spark else frame for frame, spark in zip(frames, of_spark, strict=True)]
    assert [table.column("name").to_pylist() for table in tables] == [["5"] * 1000] * 4


UNPROVEN = [
    ("m MAP<STRING, INT>", "column m is map<string,int>"),
    ("a ARRAY<STRUCT<b: BINARY>>", "column a.element.b is binary"),
    ("v VARIANT", "column v is variant"),
    ("c VARCHAR(3)", "column c is varchar"),
    ("i INTERVAL DAY", "column i is interval day"),
    ("id INT COMMENT 'a key'", "column id is int with comment"),
    ("s STRUCT<a: INT, A: INT>", "column s is struct<a:int,A:int>"),
    ("t TIMESTAMP_NTZ", "column t is timestamp_ntz"),
]


@pytest.mark.parametrize(("columns", "text"), UNPROVEN)
def test_a_type_that_only_spark_parses_is_refused(
    iceberg_arrow: SparkLake, config: Callable[..., Any], columns: str, text: str
) -> None:
    """By name, with what to set, before the consumer joins, if the settings name Arrow's writer."""
    settings = config(lake_decoder="json", lake_schema=columns, lake_file_writer="arrow")
    assert iceberg_arrow.spark
    with pytest.raises(SettingError, match=rf"lake.schema: {text}.*: set lake.file.writer=spark"):
        TopicDecoders(settings)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.legacy.timeParserPolicy", "LEGACY"),
        ("spark.sql.json.enablePartialResults", "false"),
        ("spark.sql.ansi.enabled", "false"),
    ],
)
def test_settings_that_change_what_json_means_leave_it_to_spark(
    iceberg: SparkLake, setting: str, value: str
) -> None:
    """Where the session sets them; large batches, too, are beyond Arrow's arrays."""
    spark = iceberg.spark.newSession()
    spark.conf.set(setting, value)
    with pytest.raises(UnprovenJsonError, match=f"{setting}={value}: only Spark parses JSON so"):
        create_arrow_json_decoder("id INT", spark, MB)
    with pytest.raises(UnprovenJsonError, match=r"batch.bytes: .* at most 1\.0 GB"):
        create_arrow_json_decoder("id INT", iceberg.spark, 2000 * MB)


@pytest.mark.parametrize(
    ("columns", "is_spark"), [("id BIGINT", False), ("id BIGINT, m MAP<STRING, INT>", True)]
)
def test_the_default_writer_takes_arrow_where_rows_are_the_same(
    iceberg: Any,
    write: Callable[..., Any],
    namespace: str,
    caplog: pytest.LogCaptureFixture,
    columns: str,
    *,
    is_spark: bool,
) -> None:
    """Else Spark, and the log tells why; a tombstone and a dead letter are among the values."""
    lake = type(iceberg)(iceberg.spark, iceberg.catalog_name, file_writer="auto")
    with caplog.at_level(logging.INFO, logger="trimtab.lake"):
        rows, letters, _, _ = write(lake, "auto", [b'{"id": 7}', None, b"not JSON"], columns)
    assert (sorted(rows), sorted(letters)) == ([0, 1], [2])
    told = any("m is map<string,int>, which only Spark parses" in line for line in caplog.messages)
    files = iceberg.spark.table(f"{namespace}.by_auto.files").select("file_path").collect()
    names = [row.file_path.rpartition("/")[2] for row in files]
    # Spark's names begin with the number of the task
    assert (told, [name.startswith("00000-") for name in names]) == (is_spark, [is_spark])
