"""Arrow tables to data files: mismatches are errors by name, and no partial file is left."""

import errno
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.sql.types import LongType, StructField, StructType

from trimtab.consumer_sdk.errors import DiskFullError, LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats import parquet_writer
from trimtab.consumer_sdk.lake.formats.delta.arrow_files import collect_statistics
from trimtab.consumer_sdk.lake.formats.delta.arrow_files import write_data_file as write_delta
from trimtab.consumer_sdk.lake.formats.delta.columns import DeltaSchema
from trimtab.consumer_sdk.lake.formats.iceberg import arrow_files

SHAPE = DeltaSchema(StructType([StructField("n", LongType())]), ())
UTC = pa.timestamp("us", "UTC")
REMOTE = "s3a://bucket/data.parquet"
ADVICE = r"set lake\.file\.writer=spark.*Nothing was written"


class Stream:
    """The JVM's stream; closing it completes the upload."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def close(self) -> None:
        self._done.append("closed")


def hadoop_path(text: str) -> Any:
    """Return Hadoop's path, as far as it is used; `text` is a local path or has a scheme."""
    scheme, _, rest = text.rpartition("://")
    uri = SimpleNamespace(getScheme=lambda: scheme or None, getPath=lambda: rest)
    return type("Path", (), {"toUri": lambda _: uri, "__str__": lambda _: text})()


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a JVM call that fails."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def java(copy: Callable[..., Any]) -> Any:
    """Return the JVM's packages that upload a file."""
    file = SimpleNamespace(File=lambda _: SimpleNamespace(toPath=lambda: None))
    files = SimpleNamespace(Files=SimpleNamespace(copy=copy))
    return SimpleNamespace(java=SimpleNamespace(io=file, nio=SimpleNamespace(file=files)))


def remote(done: list[str], copy: Callable[..., Any]) -> parquet_writer.ParquetTarget:
    """Return a target in an object store; `done` records the calls to it."""
    return parquet_writer.ParquetTarget(
        hadoop_path(REMOTE), lambda: Stream(done), lambda: done.append("deleted"), java(copy)
    )


def test_a_time_beyond_microseconds_is_a_mismatch_by_name() -> None:
    """Milliseconds have a longer range than the table's type; the error has the column and a remedy."""
    far = pa.table({"at": pa.array([10**17], pa.timestamp("ms", "UTC"))})
    with pytest.raises(TableSchemaMismatchError, match=rf"table t: its column at .*{ADVICE}"):
        parquet_writer.fit_to_schema("t", far, pa.schema([("at", UTC)]))


def test_a_null_where_a_nested_field_is_required_is_a_mismatch_by_name(tmp_path: Path) -> None:
    """Arrow raises it for a struct while casting, for a list while writing."""
    need = pa.field("n", pa.int64(), nullable=False)
    one = pa.table({"one": [{"n": None}]}, schema=pa.schema([("one", pa.struct([("n", pa.int64())]))]))
    with pytest.raises(TableSchemaMismatchError, match=rf"its column one .*{ADVICE}"):
        parquet_writer.fit_to_schema("t", one, pa.schema([("one", pa.struct([need]))]))
    many = pa.table({"many": pa.array([[None]], pa.list_(pa.int64()))})
    rows = parquet_writer.fit_to_schema("t", many, pa.schema([("many", pa.list_(need))]))
    target = parquet_writer.ParquetTarget(hadoop_path(str(tmp_path / "f")), print, print, None)
    with pytest.raises(TableSchemaMismatchError, match=rf"table t cannot be written .*{ADVICE}"):
        parquet_writer.write_parquet("t", rows, target, parquet_writer.ParquetCodec("zstd"), Path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("day", "text"), [(-719_162, "0001-01-01"), (-354_286, "0999-12-31"), (2_932_896, "9999-12-31")]
)
def test_bounds_have_years_of_four_digits(day: int, text: str) -> None:
    """Dates and times from year 1 on; times to the millisecond."""
    moment = day * 86_400_000_000 + 1_999
    rows = pa.table({"day": pa.array([day], pa.date32()), "at": pa.array([moment], UTC)})
    assert collect_statistics(rows)["minValues"] == {"day": text, "at": f"{text}T00:00:00.001Z"}


@pytest.mark.parametrize("day", [-719_163, 2_932_897, 20_000_000])
def test_values_without_a_year_of_four_digits_have_no_bounds(day: int) -> None:
    """For example microseconds taken for milliseconds: readers skip less, and the rows are written."""
    days = pa.array([day, 0], pa.date32())
    rows = pa.table({"day": days, "at": pa.array([day * 86_400_000_000, 0], UTC), "n": [1, 2]})
    found = collect_statistics(rows)
    assert (found["minValues"], found["maxValues"]) == ({"n": 1}, {"n": 2})
    assert found["nullCount"] == {"day": 0, "at": 0, "n": 0}


def iceberg_table(folder: Path, done: list[str], **properties: str) -> Any:
    """Return Iceberg's table of one column, n, as far as it is used."""
    io = SimpleNamespace(
        newOutputFile=lambda _: SimpleNamespace(createOrOverwrite=lambda: Stream(done)),
        newInputFile=raising(Py4JError("away")),
        deleteFile=lambda place: Path(place).unlink(),
    )
    return SimpleNamespace(
        io=lambda: io,
        locationProvider=lambda: SimpleNamespace(newDataLocation=lambda n: str(folder / n)),
        properties=lambda: {k.replace("_", "-"): v for k, v in properties.items()},
        schema=lambda: None,
        spec=lambda: SimpleNamespace(isPartitioned=lambda: False),
    )


def iceberg_java() -> Any:
    """Return the JVM's packages that a file for Iceberg needs."""
    fields = [{"id": 1, "name": "n", "type": "long", "required": False}]
    parser = SimpleNamespace(toJson=lambda _: json.dumps({"fields": fields}))
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=hadoop_path))
    iceberg = SimpleNamespace(
        SchemaParser=parser, Files=SimpleNamespace(localInput=raising(Py4JError("away")))
    )
    return SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop, iceberg=iceberg)))


@pytest.mark.parametrize(
    ("codec", "level"), [("lzo", "3"), ("bz2", "1"), ("no", "1"), ("gzip", "100"), ("zstd", "high")]
)
def test_a_codec_that_arrow_lacks_is_a_mismatch_by_name(tmp_path: Path, codec: str, level: str) -> None:
    """As an error of the storage it would be retried for ever."""
    properties = {"write.parquet.compression-codec": codec, "write.parquet.compression-level": level}
    table = iceberg_table(tmp_path, [], **properties)
    with pytest.raises(TableSchemaMismatchError, match=rf"compression-codec={codec}.*{ADVICE}"):
        arrow_files.write_data_file(table, "t", pa.table({"n": [1]}), "a", iceberg_java())
    assert not list(tmp_path.iterdir())


def test_an_iceberg_file_without_metrics_is_deleted(tmp_path: Path) -> None:
    """Iceberg fails to read the footer of the complete file: no table will reference it."""
    with pytest.raises(Py4JError, match="away"):
        arrow_files.write_data_file(
            iceberg_table(tmp_path, []), "t", pa.table({"n": [1]}), "a", iceberg_java()
        )
    assert not list(tmp_path.iterdir())


def test_a_delta_file_that_is_not_closed_is_deleted(tmp_path: Path) -> None:
    """Its action is known before the upload; no table gets it if the upload fails."""
    deleted: list[Any] = []
    stream = SimpleNamespace(close=raising(Py4JError("away")))
    system = SimpleNamespace(create=lambda _: stream, delete=lambda *given: deleted.append(given))
    path = hadoop_path(REMOTE)
    path.getFileSystem = lambda _: system
    log = SimpleNamespace(dataPath=lambda: None, newDeltaHadoopConf=lambda: None)
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=lambda *_: path))
    root = remote([], print).root
    root.org = SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop))
    with pytest.raises(Py4JError, match="away"):
        write_delta(log, "t", SHAPE, pa.table({"n": [1]}), "a", root)
    assert deleted == [(path, False)]
    assert not list(tmp_path.iterdir())


def test_a_failed_upload_is_deleted_after_its_close() -> None:
    """Closing completes the object in an object store; a complete upload stays."""
    done: list[str] = []
    with pytest.raises(Py4JError, match="away"):
        parquet_writer.write_parquet(
            "t",
            pa.table({"n": [1]}),
            remote(done, raising(Py4JError("away"))),
            parquet_writer.ParquetCodec("zstd"),
            Path,
        )
    assert done == ["closed", "deleted"]
    done.clear()
    parquet_writer.write_parquet(
        "t", pa.table({"n": [1]}), remote(done, print), parquet_writer.ParquetCodec("zstd"), Path
    )
    assert done == ["closed"]


def test_a_file_has_one_row_group() -> None:
    """Arrow begins another one after 1,048,576 rows; Iceberg would lose bounds where a group has none."""
    written: list[int] = []
    rows = pa.table({"n": pa.nulls(1_100_000, pa.int64())})
    parquet_writer.write_parquet(
        "t",
        rows,
        remote([], lambda *_: None),
        parquet_writer.ParquetCodec("zstd"),
        lambda path: written.append(pq.ParquetFile(path).num_row_groups),
    )
    assert written == [1]


def test_a_failed_deletion_hides_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The first error is raised, the second logged with the path."""
    target = remote([], print)
    stuck = parquet_writer.ParquetTarget(
        target.path, target.open_stream, raising(Py4JError("gone too")), target.root
    )
    with pytest.raises(Py4JError, match="away"), stuck.delete_on_failure():
        raise Py4JError("away")
    assert f"{REMOTE} stays until orphans are removed: Py4JError: gone too" in caplog.text


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EIO, LakeUnavailableError)]
)
def test_a_full_temporary_folder_is_reported_with_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, kind: type[Exception]
) -> None:
    """Not with the path of the remote storage."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pq, "write_table", raising(OSError(number, "no")))
    with pytest.raises(kind, match=rf"^{tmp_path}/trimtab-.*data.parquet: "):
        parquet_writer.write_parquet(
            "t", pa.table({"n": [1]}), remote([], print), parquet_writer.ParquetCodec("zstd"), Path
        )
