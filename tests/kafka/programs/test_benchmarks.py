"""The benchmarks of the live path run in their shortest versions."""

from pathlib import Path

import pytest

from support.benchmarks import run_benchmark

pytestmark = pytest.mark.broker


@pytest.mark.slow
def test_rolling_bounce_loses_no_record(bootstrap: str, tmp_path: Path) -> None:
    """Three restarted instances lose no record with Trimtab or Java; Trimtab reads none twice."""
    plot = tmp_path / "plot.png"
    sides = ("--sides", "trimtab", "java_cooperative")
    figures = run_benchmark(
        "consumer.bench_bounce", "--bootstrap", bootstrap, "--quick", *sides, "--plot", str(plot)
    )
    assert set(figures["pause_ms"]) == {"trimtab", "java_cooperative"}
    assert figures["lost"] == {"trimtab": 0, "java_cooperative": 0}
    assert figures["doubled"]["trimtab"] == 0
    assert figures["handover_p99_s"]["trimtab"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_latency_benchmark_compares_heuristics(bootstrap: str, tmp_path: Path) -> None:
    """Two throttled consumers run with `steady`, led by the sidecar, and with Kafka's range assignor."""
    plot = tmp_path / "plot.png"
    small = ("--consumers", "2", "--partitions", "6", "--seconds", "6", "--settle", "4")
    of = ("--heuristics", "steady", "range")
    figures = run_benchmark(
        "consumer.bench_latency", "--bootstrap", bootstrap, *small, *of, "--plot", str(plot)
    )
    assert set(figures["p99_s"]) == {"steady", "range"}
    assert all(0 < figures["p50_s"][h] <= figures["p99_s"][h] for h in ("steady", "range"))
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ingest_benchmark_compares_tools(bootstrap: str, tmp_path: Path) -> None:
    """Every case writes each record once and reports throughput and memory."""
    plot = tmp_path / "plot.png"
    cases = ("trimtab_iceberg", "plain_loop")  # `make bench` runs the others, each a JVM more
    small = ("--quick", "--cases", *cases, "--plot", str(plot))
    figures = run_benchmark("sinks.bench_ingest", "--bootstrap", bootstrap, *small)
    assert set(figures["mb_per_s"]) == set(cases)
    for case in figures["by_size"]["1000_byte_records"].values():
        assert all(case[name] > 0 for name in ("mb_per_s", "records_per_s", "peak_mb"))
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_upsert_benchmark_compares_tools() -> None:
    """Every table equals the replay of its changes, and CPU and wall time are reported."""
    cases = ("trimtab_iceberg", "delta_rs")
    small = ("--cases", *cases, "--rows", "2000", "--batch", "500", "--batches", "2", "--compact", "1")
    figures = run_benchmark("sinks.bench_upsert", *small)
    assert set(figures["changes_per_cpu_s"]) == set(figures["changes_per_s"]) == set(cases)
    assert all(figures["changes_per_cpu_s"][case] > 0 for case in cases)


@pytest.mark.slow
@pytest.mark.parametrize("lake_format", ["iceberg", "delta"])
def test_bridge_benchmark_compares_reads_of_changes_with_a_replay(bootstrap: str, lake_format: str) -> None:
    """While the table gets new versions, no read lacks a row, or has one twice or an outdated one."""
    small = ("--rate", "400", "--batch-age", "2", "--reads", "60", "--seconds", "15")
    figures = run_benchmark(
        "sinks.bench_bridge", "--bootstrap", bootstrap, "--write", "upsert", "--format", lake_format, *small
    )
    assert figures["reads"] >= 60
    assert figures["versions"] > 1
    assert (figures["missing"], figures["doubled"], figures["stale"]) == (0, 0, 0)


@pytest.mark.slow
def test_group_size_benchmark_finds_the_limit() -> None:
    """A broker refuses a group whose record exceeds its limit unless compressed; the doctor warns before."""
    sizes = ("--sizes", "20x40", "80x400", "100x1000")
    figures = run_benchmark("sidecar.bench_group_size", *sizes, "--brokers", "30 kB", "30 kB, zstd")
    stored = {broker: [group["stored"] for group in groups.values()] for broker, groups in figures.items()}
    assert stored == {"30 kB": [True, True, False], "30 kB, zstd": [True, True, True]}
    doctor = {broker: [group["doctor"] for group in groups.values()] for broker, groups in figures.items()}
    assert doctor == {"30 kB": ["ok", "warning", "warning"], "30 kB, zstd": ["ok", "ok", "ok"]}
    for group in (*figures["30 kB"].values(), *figures["30 kB, zstd"].values()):
        if group["stored"]:
            assert group["estimated_bytes"] == pytest.approx(group["record_bytes"], rel=0.1)


def test_control_topic_benchmark_reads_what_it_wrote(bootstrap: str) -> None:
    """Write rates beyond one record are written, read and measured."""
    figures = run_benchmark("sidecar.bench_control_topics", "--bootstrap", bootstrap, "--partitions", "20000")
    assert figures["records"] > 1
    assert figures["read_partitions"] == 20_000
    assert 0 < figures["rss_before_mb"] <= figures["rss_peak_mb"]
