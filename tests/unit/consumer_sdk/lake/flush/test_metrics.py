"""Metrics of the lake writer: counting and serving."""

import random
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchCommitted, BatchRefused, FlushBatch, TableWrite
from trimtab.consumer_sdk.lake.flush.flush_metrics import record_ages, with_flush_metrics
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics, VectorHistogram, serve_metrics
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.consumer_sdk.lake.writer.halted_partitions import HaltedPartitions

LAKE = {"group.id": "g", "lake.warehouse": "lake", "topics": ["t"], "bootstrap.servers": "x:1"}


def test_a_vector_counts_like_its_single_values() -> None:
    """A bound belongs to its bucket, and a negative value counts as 0."""
    registry = CollectorRegistry()
    histogram = VectorHistogram("age", "Age", (1.0, 10.0))
    registry.register(histogram)
    histogram.observe("t", np.array([-5.0, 0.5, 1.0, 2.0]))
    histogram.observe("t", np.array([10.0, 11.0]))

    def below(bound: str) -> float | None:
        return registry.get_sample_value("age_bucket", {"table": "t", "le": bound})

    assert [below("1"), below("10"), below("+Inf")] == [3, 5, 6]
    assert registry.get_sample_value("age_count", {"table": "t"}) == 6
    assert registry.get_sample_value("age_sum", {"table": "t"}) == 24.5


def test_records_without_a_timestamp_have_no_age() -> None:
    """Ages are seconds, as exact as the timestamps."""
    stamps = [1_000_000, None, 2_500_000]
    records = pa.Table.from_pylist([{"timestamp": stamp} for stamp in stamps], schema=RECORD_SCHEMA)
    assert record_ages(records, 3.0).tolist() == [2.0, 0.5]


class FixedClock:
    """A clock that stands at 3 s."""

    def monotonic(self) -> float:
        return 3.0

    def wall(self) -> float:
        return 3.0

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(("lands", "counted"), [(True, 2), (False, None)])
def test_a_committed_batch_is_counted_for_its_tables(*, lands: bool, counted: int | None) -> None:
    """Freshness for the topic table, rows and bytes for each table; a refused batch counts nothing."""
    stamps = [1_000_000, 2_500_000]
    records = pa.Table.from_pylist([{"timestamp": stamp} for stamp in stamps], schema=RECORD_SCHEMA)
    batch, metrics = FlushBatch("lake.orders", {}, records), LakeMetrics()
    written = (TableWrite("lake.orders_dead_letter", 1, 10), TableWrite("lake.orders", 1, 90))
    outcome = BatchCommitted(batch, written) if lands else BatchRefused(batch, {})
    backoff = RetryBackoff(random.Random(7))  # noqa: S311 - jitter
    assert with_flush_metrics(lambda *_: outcome, metrics, FixedClock())(batch, backoff) is outcome

    def value(name: str, table: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"table": table})

    assert value("trimtab_freshness_seconds_count", "lake.orders") == counted
    assert value("trimtab_written_rows_total", "lake.orders_dead_letter") == (1 if lands else None)
    assert value("trimtab_written_bytes_total", "lake.orders") == (90 if lands else None)
    assert value("trimtab_flush_seconds_count", "lake.orders") == (1 if lands else None)


def test_a_failed_decision_of_the_leader_is_exported() -> None:
    """As long as the last rebalance has a fault."""
    metrics, fault = LakeMetrics(), [""]
    metrics.watch_leader(lambda: fault[0])
    assert metrics.registry.get_sample_value("trimtab_leader_fallback") == 0
    fault[0] = "plan 3: …"
    assert metrics.registry.get_sample_value("trimtab_leader_fallback") == 1


def test_halted_partitions_are_exported_by_topic() -> None:
    """Until their next assignment; a topic without one keeps its sample."""
    metrics = LakeMetrics()
    halted = HaltedPartitions(metrics, random.Random(1))  # noqa: S311 - jitter
    orders = [TopicPartition("orders", number) for number in range(3)]
    halted.halt(orders, TableSchemaMismatchError("no column"))
    halted.discard(orders[:2])
    assert metrics.registry.get_sample_value("trimtab_halted_partitions", {"topic": "orders"}) == 1
    halted.discard(orders)
    assert metrics.registry.get_sample_value("trimtab_halted_partitions", {"topic": "orders"}) == 0


def test_metrics_are_served_while_the_block_runs() -> None:
    """On a free port of the loopback; a port in use is a setting error."""
    metrics = LakeMetrics()
    metrics.count_written("lake.orders", 3, 100)
    with serve_metrics(metrics, "127.0.0.1", 0) as url:
        page = urlopen(url).read().decode()  # noqa: S310 - our own page
        port = int(url.split(":")[2].split("/")[0])
        with (
            pytest.raises(SettingError, match="choose another one"),
            serve_metrics(metrics, "127.0.0.1", port),
        ):
            pass
    assert 'trimtab_written_rows_total{table="lake.orders"} 3.0' in page


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, None),
        ({"trimtab.metrics.port": 0}, ("127.0.0.1", 0)),
        ({"trimtab.metrics.port": "9464", "trimtab.metrics.host": "::"}, ("::", 9464)),
    ],
)
def test_metrics_are_off_unless_a_port_is_given(
    given: dict[str, object], address: tuple[str, int] | None
) -> None:
    """The address is the loopback's by default."""
    assert ingest.parse_ingest_settings(LAKE | given).metrics_address == address


@pytest.mark.parametrize("port", [-1, 65536, "many"])
def test_an_invalid_port_is_refused(port: object) -> None:
    """The error has the setting's name."""
    with pytest.raises(SettingError, match=r"trimtab\.metrics\.port"):
        ingest.parse_ingest_settings(LAKE | {"trimtab.metrics.port": port})
