"""The settings of `trimtab measure-capacity`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from trimtab.cli.measure_capacity import capacity_settings
from trimtab.cli.measure_capacity.measurement import CaseThroughput, await_topics, make_values
from trimtab.cli.measure_capacity.run import build_result
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.settings.config_file import read_config_file
from trimtab.consumer_sdk.errors import BrokerUnreachableError, MissingAclError


def test_the_default_cases_are_the_papers() -> None:
    """Table VI: 1, 5 and 5 tables; 32, 116 and 144 partitions; 648, 100 and 678 MB."""
    cases = capacity_settings.parse_cases(None)
    assert [(c.tables, c.partitions, c.size) for c in cases] == [
        (1, 32, 648_000_000),
        (5, 116, 100_000_000),
        (5, 144, 678_000_000),
    ]
    assert cases[1].split_partitions() == [24, 23, 23, 23, 23]


@pytest.mark.parametrize("text", ["", "1:2", "0:2:3", "3:2:1", "1:2:0", "1:2:3 MB", "a:b:c", "1:-2:3"])
def test_a_case_that_cannot_be_is_refused(text: str) -> None:
    """The error shows the form of a case."""
    with pytest.raises(SettingError, match=r"--case: .*TABLES:PARTITIONS:MB"):
        capacity_settings.parse_cases([text])


CONFIG: dict[str, Any] = {
    "bootstrap.servers": "kafka:9093",
    "security.protocol": "SASL_SSL",
    "sasl.password": "secret",
    "group.id": "lake",
    "group.instance.id": "pod-3",
    "topics": ["orders"],
    "trimtab.throttle": "1 MB/s",
    "fetch.min.bytes": 10,
    "lake.warehouse": "/data/lake",
    "lake.tables": {"orders": "shop.orders"},
    "lake.file.writer": "arrow",
    "batch.bytes": "16 MB",
}


def test_the_lake_settings_are_measured_on_topics_and_tables_of_their_own() -> None:
    """Neither the group, nor the topics, the tables, the throttle or the identity of the configuration."""
    found = capacity_settings.build_ingest_config(CONFIG, "scratch", "/data/tmp", is_embedded=False)
    assert found == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.password": "secret",
        "fetch.min.bytes": 10,
        "lake.warehouse": "/data/tmp",
        "lake.file.writer": "arrow",
        "batch.bytes": "16 MB",
        "lake.flush.timeout": "10 min",
        "lake.table": "scratch.{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def test_credentials_are_not_used_with_the_embedded_broker() -> None:
    """That broker has no listener for them."""
    found = capacity_settings.build_ingest_config(CONFIG, "scratch", "/data/tmp", is_embedded=True)
    assert not {"bootstrap.servers", "security.protocol", "sasl.password"} & found.keys()


def test_a_catalog_keeps_its_warehouse() -> None:
    """Its tables are dropped afterwards, so that they may lie where the others are."""
    config = {
        "lake.catalog.type": "rest",
        "lake.catalog.uri": "http://c",
        "lake.warehouse": "s3://bucket/lake",
    }
    assert capacity_settings.find_local_warehouse(config) is None
    found = capacity_settings.build_ingest_config(config, "scratch", "/unused", is_embedded=True)
    assert found["lake.warehouse"] == "s3://bucket/lake"


def test_an_object_storage_keeps_its_warehouse() -> None:
    """Folders of Delta are removed there, and a local folder's place is beside the tables."""
    config = {"lake.format": "delta", "lake.warehouse": "s3://bucket/lake"}
    assert capacity_settings.find_local_warehouse(config) is None
    assert capacity_settings.is_remote(config)
    found = capacity_settings.build_ingest_config(config, "scratch", "/unused", is_embedded=True)
    assert found["lake.warehouse"] == "s3://bucket/lake"
    local = {"lake.warehouse": "file:///data/lake"}
    assert capacity_settings.find_local_warehouse(local) == Path("/data/lake")
    assert not capacity_settings.is_remote(local)
    assert not capacity_settings.is_remote({})


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"lake.schema": {"orders": "id INT"}}, r"lake\.schema maps topics"),
        ({"lake.partition": {"shop.orders": "id"}}, r"lake\.partition maps topics"),
    ],
)
def test_settings_by_topic_are_refused(config: dict[str, Any], problem: str) -> None:
    """The measurement has topics and tables of its own."""
    with pytest.raises(SettingError, match=problem):
        capacity_settings.build_ingest_config(config, "scratch", "/data/tmp", is_embedded=True)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"lake.decoder": "json"}, "write --values FILE with values, one a line, that fit lake.schema"),
        ({"lake.decoder": "avro"}, "write --values FILE with values, in Base64, one a line"),
        ({"lake.decoder": "protobuf"}, "write --values FILE with values, in Base64, one a line"),
        ({"lake.decoder": "json", "lake.write": "upsert"}, "changes of more keys than a batch has, one a"),
        (
            {"lake.decoder": "avro", "lake.write": "upsert"},
            "changes of more keys than a batch has, in Base64",
        ),
    ],
)
def test_values_that_cannot_be_made_up_are_needed(config: dict[str, Any], problem: str) -> None:
    """Random text would be dead letters, which cost something else."""
    with pytest.raises(SettingError, match=f"lake.decoder={config['lake.decoder']}: .*{problem}"):
        capacity_settings.read_values(None, config)
    assert capacity_settings.read_values(None, {}) == []


def test_values_are_lines_of_a_file(tmp_path: Path) -> None:
    """Binary ones in Base64, as a schema registry's are."""
    file = tmp_path / "values.jsonl"
    file.write_text('{"id": 1}\n{"id": 2}\n')
    assert capacity_settings.read_values(file, {"lake.decoder": "json"}) == [b'{"id": 1}', b'{"id": 2}']
    with pytest.raises(SettingError, match="has a line that is not Base64"):
        capacity_settings.read_values(file, {"lake.decoder": "avro"})
    file.write_bytes(b"AAAAAAEK\nAAAAAAEM\n")
    assert capacity_settings.read_values(file, {"lake.decoder": "avro"}) == [
        b"\0\0\0\0\1\n",
        b"\0\0\0\0\1\x0c",
    ]
    file.write_text("")
    with pytest.raises(SettingError, match="is empty"):
        capacity_settings.read_values(file, {})
    with pytest.raises(SettingError, match="cannot be read"):
        capacity_settings.read_values(tmp_path / "none", {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "trimtab.capacity: 43.1 MB/s\n"),
        ("group.id: lake", "group.id: lake\ntrimtab.capacity: 43.1 MB/s\n"),
        (
            "# C\ntrimtab.capacity: 2.3 MB/s # of one consumer\ngroup.id: lake\n",
            "# C\ntrimtab.capacity: 43.1 MB/s # of one consumer\ngroup.id: lake\n",
        ),
        ("'trimtab.capacity': 2.3 MB/s\ngroup.id: a\n", "trimtab.capacity: 43.1 MB/s\ngroup.id: a\n"),
    ],
)
def test_the_capacity_is_written_into_a_configuration(tmp_path: Path, before: str, after: str) -> None:
    """Comments and other settings stay."""
    file = tmp_path / "ingest.yaml"
    file.write_text(before)
    capacity_settings.write_capacity(file, "43.1 MB/s")
    assert file.read_text() == after
    assert read_config_file(file)["trimtab.capacity"] == "43.1 MB/s"


def test_a_configuration_that_hides_the_setting_is_left_to_its_owner(tmp_path: Path) -> None:
    """Flow style has no line of its own for the setting."""
    file = tmp_path / "ingest.yaml"
    file.write_text("{group.id: lake, trimtab.capacity: 2.3 MB/s}\n")
    with pytest.raises(SettingError, match=r"write 'trimtab\.capacity: 43\.1 MB/s' by hand"):
        capacity_settings.write_capacity(file, "43.1 MB/s")
    assert file.read_text() == "{group.id: lake, trimtab.capacity: 2.3 MB/s}\n"


def test_the_lowest_throughput_is_the_capacity() -> None:
    """A consumer that is placed by it keeps up in every case."""
    first, second = capacity_settings.parse_cases(["1:4:100", "2:8:50"])
    results = [CaseThroughput(first, 100_000_000, 2.0), CaseThroughput(second, 50_000_000, 2.0)]
    assert build_result(results) == {
        "capacity_bytes_per_s": 25_000_000,
        "cases": {
            "1:4:100": {"seconds": 2.0, "bytes_per_s": 50_000_000},
            "2:8:50": {"seconds": 2.0, "bytes_per_s": 25_000_000},
        },
    }


@pytest.mark.parametrize("size", [1, 12, 13, 200, 1001])
def test_values_have_the_size_asked_for(size: int) -> None:
    """JSON needs twelve bytes itself."""
    assert {len(value) for value in make_values(size)[:3]} == {max(12, size)}


class FakeTopics:
    """An AdminClient whose metadata has this error for every topic."""

    def __init__(self, code: int) -> None:
        self.error = KafkaError(code)

    def list_topics(self, name: str, timeout: float) -> Any:
        assert timeout > 0
        return SimpleNamespace(topics={name: SimpleNamespace(error=self.error)})


class SkippingClock(SystemClock):
    """A clock on which each sleep takes a minute."""

    slept = 0

    def monotonic(self) -> float:  # type: ignore[override]
        return 60.0 * self.slept

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds < 1
        self.slept += 1


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, MissingAclError, "grant Describe and Read on topics"),
        (KafkaError.LEADER_NOT_AVAILABLE, BrokerUnreachableError, "kafka:9092.*t-0 was created 30 s ago"),
    ],
)
def test_a_created_topic_that_never_appears_ends_the_measurement(
    code: int, kind: type[Exception], text: str
) -> None:
    """Without Describe, or without a leader, it would be awaited for ever."""
    with pytest.raises(kind, match=text):
        await_topics(FakeTopics(code), ["t-0"], SkippingClock(), "kafka:9092")  # type: ignore[arg-type]
