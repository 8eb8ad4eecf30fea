"""`trimtab tables verify` and the maintenance commands on real tables, beside a real broker."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RawPartition

from support.lake.slow_on_delta import slow_on_delta
from trimtab.assignor.model import TopicPartition
from trimtab.cli.main import main
from trimtab.cli.tables import verify
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.options.settings import TABLE_FORMATS
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA, build_record_batch
from trimtab.consumer_sdk.lake.session import factory
from trimtab.consumer_sdk.lake.verify.lake_verification import LakeVerification, TableKindRules
from trimtab.consumer_sdk.lake.verify.table_verification import TableVerification, sample_everything
from trimtab.consumer_sdk.lake.verify.topic_log import BrokerTopicLog, build_reader_settings

pytestmark = [pytest.mark.spark, pytest.mark.broker]

COUNT = 30
MORE = 5
EACH = pytest.mark.parametrize("lake", ["iceberg_arrow", "delta_arrow"], indirect=True)
SLOW_ON_DELTA = slow_on_delta("iceberg_arrow", "delta_arrow")


@pytest.fixture
def produced(topic: Callable[..., str], bootstrap: str) -> tuple[TopicPartition, list[Any]]:
    """Produce records; return a partition and its records up to an offset as rows; the topic goes on."""
    where = TopicPartition(topic(partitions=1), 0)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for n in range(COUNT + MORE):
        producer.produce(where.topic, b"v", None if n == 1 else b"k%d" % n)
    assert producer.flush(60) == 0
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "not-used"})
    reader.assign([RawPartition(*where, 0)])
    messages = reader.consume(COUNT, timeout=60)
    reader.close()
    return where, build_record_batch(where, messages).to_pylist()


@pytest.fixture
def config(produced: Any, bootstrap: str, namespace: str, warehouse: Path) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "g",
        "lake.warehouse": str(warehouse),
        "lake.tables": {produced[0].topic: f"{namespace}.orders"},
    }


@pytest.fixture
def write_table(lake: SparkLake, produced: Any, namespace: str) -> Callable[[list[Any]], None]:
    """Write rows into the topic table, in pieces, with the offset above them."""

    def fill(rows: list[Any]) -> None:
        step = len(rows) // 5
        pieces = [rows[n * step : (n + 1) * step] for n in range(4)] + [rows[4 * step :]]
        for n, piece in enumerate(pieces):
            frame = lake.to_frame(pa.Table.from_pylist(piece, schema=RECORD_SCHEMA))
            table = lake.create_table(f"{namespace}.orders", frame)
            offsets = CommittedOffsets({"g": {produced[0]: COUNT if n == 4 else n}})
            table.commit(table.stage_rows(frame, f"a{n}"), offsets, table.read_offsets())

    return fill


@pytest.fixture
def log(config: dict[str, Any]) -> Iterator[BrokerTopicLog]:
    made = BrokerTopicLog(build_reader_settings(config))
    yield made
    made.close()


@pytest.fixture
def verify_table(
    lake: SparkLake, config: dict[str, Any], log: BrokerTopicLog
) -> Callable[[], TableVerification]:
    """Verify the topic table, every row against the broker."""

    def run() -> TableVerification:
        names = list(config["lake.tables"].values())
        work = LakeVerification(
            lake, TableKindRules.from_config(config), log, sample_everything(12), lambda *_: None
        )
        (found,) = work.run(names)
        return found

    return run


def with_defects(rows: list[Any]) -> list[Any]:
    """Rows with one duplicate, one deleted, one changed, one beyond the offset."""
    changed = rows[7] | {"key": b"another"}
    return [*rows[:5], rows[3], rows[6], changed, *rows[8:], rows[9] | {"offset": COUNT + 1}]


@EACH
def test_a_sound_table_passes(
    write_table: Callable[..., None], verify_table: Callable[[], TableVerification], produced: Any
) -> None:
    """Every row is compared with its record."""
    write_table(produced[1])
    found = verify_table()
    (part,) = found.partitions
    assert (found.kind, found.faults, part.rows, part.compared) == ("topic table", (), COUNT, COUNT)
    assert (part.committed_offset, part.log_start, part.log_end) == (COUNT, 0, COUNT + MORE)


@EACH
def test_each_planted_defect_is_found(
    write_table: Callable[..., None], verify_table: Callable[[], TableVerification], produced: Any
) -> None:
    """The report has the offset of each."""
    write_table(with_defects(produced[1]))
    (part,) = verify_table().partitions
    assert part.examples == {
        "duplicated": [3],
        "missing": [5],
        "beyond_committed": [COUNT + 1],
        "different": [7],
    }
    assert (part.duplicated, part.missing, part.beyond_committed, part.different) == (1, 1, 1, 1)


@pytest.fixture
def command(
    lake: SparkLake,
    config: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:
    """Run `trimtab tables …` on the run's lake; return exit code and output."""
    monkeypatch.setattr(factory, "open_lake", lambda _: lake)
    monkeypatch.setattr(verify, "_use_all_cores", lambda *_: None)  # all tests share the session
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "ingest.yaml"
    kind = TABLE_FORMATS[type(lake).__name__.startswith("Delta")]
    file.write_text(yaml.safe_dump(config | {"lake.format": kind}))

    def run(*words: str) -> tuple[int, str]:
        return main(["tables", *words, "--config", str(file)]), capsys.readouterr().out

    return run


@SLOW_ON_DELTA
def test_the_command_passes_sound_tables(
    lake: SparkLake,
    write_table: Callable[..., None],
    produced: Any,
    config: dict[str, Any],
    namespace: str,
    command: Callable[..., tuple[int, str]],
) -> None:
    """Exit code 0, also with a fan-out table without record columns."""
    write_table(produced[1])
    frame = lake.to_frame(pa.table({"id": [1, 2]}))
    table = lake.create_table(f"{namespace}.ids", frame)
    table.commit(
        table.stage_rows(frame, "ids"), CommittedOffsets({"g": {produced[0]: COUNT}}), table.read_offsets()
    )
    own, ids = config["lake.tables"][produced[0].topic], f"{namespace}.ids"
    code, output = command("verify", ids, own, "--strict", "--against-broker", "all", "--format", "json")
    assert code == 0
    answer = json.loads(output)
    first, second = answer["tables"]
    assert (answer["ok"], first["table"], second["table"]) == (True, ids, own)
    assert "no column topic, partition, offset" in first["notes"][0]
    assert second["partitions"][0]["compared"] == COUNT


@pytest.mark.parametrize(
    "lake", ["iceberg_arrow", pytest.param("delta_arrow", marks=pytest.mark.slow)], indirect=True
)
def test_the_commands_verify_compact_and_expire(
    write_table: Callable[..., None],
    produced: Any,
    config: dict[str, Any],
    command: Callable[..., tuple[int, str]],
) -> None:
    """Defects are exit code 1 with advice, also after a compaction and an expiry."""
    name = config["lake.tables"][produced[0].topic]
    write_table(with_defects(produced[1]))

    def run_command(*words: str) -> str:
        code, output = command(*words, name)
        assert code == (1 if words[0] == "verify" else 0)
        return output

    assert "5 files" in run_command("compact", "--dry-run")
    assert "5 files" in run_command("compact")
    assert "0 files" in run_command("compact", "--dry-run")
    assert name in run_command("expire", "--older-than", "1 h")
    output = run_command("verify")
    assert f"1 duplicated at 3; 1 missing at 5; 1 beyond committed at {COUNT + 1}" in output
    assert "missing: records on the broker without a row" in output
    answer = json.loads(run_command("verify", "--against-broker", "all", "--format", "json"))
    assert (answer["ok"], answer["tables"][0]["partitions"][0]["different"]) == (False, 1)
