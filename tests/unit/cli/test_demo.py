"""Pure parts of the demo: scenario, records, pace, proof and views."""

import json
import os
import random
import signal
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from trimtab.assignor.model import TopicPartition
from trimtab.cli.demo import jvm_class_archive, processes
from trimtab.cli.demo.group_watcher import DemoSnapshot, ObservedNumbers
from trimtab.cli.demo.picture import save_picture
from trimtab.cli.demo.producers import PartitionTally, RecordPacer, make_record
from trimtab.cli.demo.proof import DeliveryProof, StoredPartition, prove_delivery
from trimtab.cli.demo.runner import clear_output_folder
from trimtab.cli.demo.scenario import (
    DEMO_CONSUMER_CAPACITY,
    PARTITIONS_PER_TOPIC,
    RECORD_BYTES,
    TOPIC_SHARES,
    DemoScenario,
)
from trimtab.cli.demo.view import (
    DemoHistory,
    format_line,
    format_sparkline,
    render_consumer_bar,
    render_frame,
)
from trimtab.cli.main import main
from trimtab.common.clock import SystemClock
from trimtab.common.settings import config_file
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.sidecar.settings import settings as sidecar
from trimtab.sidecar.targets.process.linux_process import read_start_ticks
from trimtab.sidecar.targets.process.process_target import ProcessTarget

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 3)
STORED = StoredPartition(rows=2, distinct=2, next=2, checksums=30)
TALLY = PartitionTally(records=2, checksums=30)


@pytest.mark.parametrize("seconds", [20.0, 60.0, 160.0])
def test_load_rises_then_falls(seconds: float) -> None:
    """The load rises to its peak, stays there and falls to its initial value."""
    scenario = DemoScenario(seconds)
    levels = [scenario.load_at(seconds * i / 100) for i in range(101)]
    top = levels.index(max(levels))
    assert levels[: top + 1] == sorted(levels[: top + 1])
    assert levels[top:] == sorted(levels[top:], reverse=True)
    assert levels[0] == levels[-1] < levels[top] == pytest.approx(scenario.peak_load * DEMO_CONSUMER_CAPACITY)


def test_partition_rates_add_up_to_the_load() -> None:
    """The rates of all partitions add up to the scenario's load, and topics keep their shares."""
    scenario = DemoScenario()
    rates = scenario.write_rates()
    levels = [scenario.load_at(float(tick)) for tick in range(len(rates))]
    assert rates.shape == (len(levels), PARTITIONS_PER_TOPIC * len(TOPIC_SHARES))
    assert rates.sum(axis=1).tolist() == pytest.approx(levels)
    assert rates.max() < DEMO_CONSUMER_CAPACITY  # no partition is more than a consumer can read
    by_topic = dict.fromkeys(TOPIC_SHARES, 0.0)
    for where, total in zip(scenario.partitions, rates.sum(axis=0).tolist(), strict=True):
        by_topic[where.topic] += total
    assert sorted(by_topic, key=lambda t: by_topic[t], reverse=True) == list(TOPIC_SHARES)


def test_same_seed_same_load() -> None:
    """The seed determines the random walk."""
    assert (DemoScenario(seed=3).write_rates() == DemoScenario(seed=3).write_rates()).all()
    assert (DemoScenario(seed=3).write_rates() != DemoScenario(seed=4).write_rates()).any()


def test_record_names_its_position_and_checksum() -> None:
    """A record has the requested size, names its position and ends in the checksum of the rest."""
    record = make_record(ORDERS, 41, RECORD_BYTES, random.Random(1))  # noqa: S311 - filler
    assert len(record.key) + len(record.value) == RECORD_BYTES
    assert record.value.startswith(b"orders 0 41 ")
    assert int(record.value[-8:], 16) == zlib.crc32(record.value[:-8])
    assert record.checksum == zlib.crc32(record.value)


def test_pace_follows_the_write_rates() -> None:
    """The number of due records follows the write rates, for any length of the intervals."""
    scenario = DemoScenario(20)
    rates = scenario.write_rates()
    pace = RecordPacer(rates, 100.0)
    due = [0] * rates.shape[1]
    for step in range(1, 401):
        due = [a + b for a, b in zip(due, pace.due_records(100.0 + step * 0.05), strict=True)]
    assert due == pytest.approx((rates.sum(axis=0) / RECORD_BYTES).tolist(), abs=2.5)


def test_exactly_once_summary() -> None:
    """If tables, broker and producers agree, the summary is the promised line."""
    proof = prove_delivery({ORDERS: STORED}, {ORDERS: 2}, {ORDERS: TALLY})
    assert proof == DeliveryProof(2, 0, 0, 0)
    assert (proof.is_exactly_once, proof.summary_line()) == (
        True,
        "exactly once: 2 records, 0 lost, 0 duplicated",
    )


@pytest.mark.parametrize(
    ("stored", "lost", "duplicated", "corrupt"),
    [
        ({}, 2, 0, 0),
        ({ORDERS: StoredPartition(1, 1, 2, 10)}, 1, 0, 0),
        ({ORDERS: StoredPartition(3, 2, 2, 40)}, 0, 1, 0),
        ({ORDERS: StoredPartition(2, 1, 1, 30)}, 1, 1, 0),
        ({ORDERS: StoredPartition(2, 2, 2, 30, corrupt=1)}, 0, 0, 1),
    ],
    ids=["no table", "one lost", "one duplicated", "a duplicate hides a lost one", "one corrupt"],
)
def test_failures_are_counted(
    stored: dict[TopicPartition, StoredPartition], lost: int, duplicated: int, corrupt: int
) -> None:
    """Each kind of failure is counted, and the summary says NOT."""
    proof = prove_delivery(stored, {ORDERS: 2}, {ORDERS: TALLY})
    assert (proof.lost, proof.duplicated, proof.corrupt) == (lost, duplicated, corrupt)
    assert not proof.is_exactly_once
    assert proof.summary_line().startswith("NOT exactly once: 2 records, ")


@pytest.mark.parametrize(
    ("stored", "ends", "tally", "fault"),
    [
        (STORED, 2, PartitionTally(1, 30), "1 record was acknowledged, the broker has 2"),
        (StoredPartition(2, 2, 3, 30), 2, TALLY, "holds offset 2, the broker ends at 2"),
        (StoredPartition(2, 2, 2, 31), 2, TALLY, "checksums of the table do not add up"),
    ],
)
def test_disagreement_is_a_fault(
    stored: StoredPartition, ends: int, tally: PartitionTally, fault: str
) -> None:
    """A disagreement of the three counts is a fault, even without a lost or duplicated record."""
    proof = prove_delivery({ORDERS: stored}, {ORDERS: ends}, {ORDERS: tally})
    assert not proof.is_exactly_once
    assert fault in proof.faults[0]


def test_no_records_prove_nothing() -> None:
    """A demo without records does not succeed."""
    assert not prove_delivery({}, {ORDERS: 0}, {ORDERS: PartitionTally()}).is_exactly_once


def test_producer_fault_fails_the_proof() -> None:
    """A fault of the producers fails the proof."""
    assert not prove_delivery({ORDERS: STORED}, {ORDERS: 2}, {ORDERS: TALLY}, ["no answer"]).is_exactly_once


def test_bar_width_is_the_load() -> None:
    """A bar of 40 columns is one capacity: a partition at half of it takes 20, the rest is dots."""
    text = render_consumer_bar(
        [ORDERS, CLICKS], [DEMO_CONSUMER_CAPACITY / 2, DEMO_CONSUMER_CAPACITY / 4], DemoScenario(), 40
    )
    assert text.plain == "0".ljust(20) + "3".ljust(10) + "·" * 10
    overfull = render_consumer_bar(
        [ORDERS, CLICKS], [DEMO_CONSUMER_CAPACITY, DEMO_CONSUMER_CAPACITY], DemoScenario(), 40
    )
    assert len(overfull.plain) == 40


def test_sparkline_is_scaled_to_the_maximum() -> None:
    """The largest value fills its column, zero is the lowest block."""
    assert format_sparkline([0, 1, 2, 4]) == "▁▃▅█"
    assert format_sparkline([0, 0]) == "▁▁"


@pytest.fixture
def history() -> DemoHistory:
    """Two snapshots and two events."""
    numbers = ObservedNumbers(
        write_rate=150e3, backlog_bytes=2e6, running_replicas=3, planned_replicas=3, desired_replicas=3
    )
    owned = {"worker-1": (ORDERS,), "worker-2": (CLICKS,)}
    rates = {ORDERS: 60e3, CLICKS: 90e3}
    snapshots = [
        DemoSnapshot(1.0, {"worker-1": (CLICKS, ORDERS)}, rates),
        DemoSnapshot(2.0, owned, rates, ("worker-2",), numbers, 90e3, handovers=2, handover_seconds=0.4),
    ]
    events = [(1.5, "scale-up", "1 -> 3: why"), (1.8, "killed", "worker-9 (SIGKILL)")]
    return DemoHistory(snapshots, events, "the load follows the scenario")


def test_frame_shows_consumers_load_and_decisions(history: DemoHistory) -> None:
    """The view has consumers, draining and starting ones, figures and reasons."""
    console = Console(width=100)
    with console.capture() as captured:
        console.print(render_frame(history, DemoScenario(), 100))
    text = captured.get()
    for words in ("worker-1", "draining", "its Spark session starts", "150.0 kB/s", "2.0 MB"):
        assert words in text
    assert "200 ms in the mean" in text
    assert "1 -> 3: why" in text


def test_line_is_one_line(history: DemoHistory) -> None:
    """Without a terminal a snapshot is one plain line."""
    assert format_line(history) == (
        "[   2 s] 2 consumers read, 2 start Spark, 3 run, 3 desired; "
        "writing 150.0 kB/s, backlog 2.0 MB, 2 handovers"
    )


@pytest.mark.parametrize(
    ("running", "desired", "text"),
    [
        (6, 1, "6 run, 1 desired: 5 to stop;"),
        (0, 1, "0 run, 1 desired: 1 to start;"),
        (None, None, "the sidecar starts;"),
    ],
)
def test_line_says_what_becomes_of_a_difference(
    history: DemoHistory, running: int | None, desired: int | None, text: str
) -> None:
    """More consumers than desired look like an error, unless the line says that they will stop."""
    last = history.snapshots[-1]
    numbers = replace(last.numbers, running_replicas=running, desired_replicas=desired)
    assert text in format_line(replace_last(history, replace(last, numbers=numbers)))


def replace_last(history: DemoHistory, snapshot: DemoSnapshot) -> DemoHistory:
    return replace(history, snapshots=[*history.snapshots[:-1], snapshot])


def test_picture_is_drawn(history: DemoHistory, tmp_path: Path) -> None:
    """The picture is a PNG file."""
    history.add_event(1.9, "restart", "all")
    save_picture(history, "a title", tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_configurations_are_valid(tmp_path: Path) -> None:
    """Workers and sidecar accept their configurations, even with blanks in paths."""
    scenario, client = DemoScenario(prefix="x-"), {"bootstrap.servers": "127.0.0.1:1"}
    worker: dict[str, Any] = processes.ingest_settings(scenario, client, "g", tmp_path / "a b", "-Dx=y")
    checked = ingest.parse_ingest_settings(worker)
    assert (checked.throttle, checked.topics) == (DEMO_CONSUMER_CAPACITY, scenario.topics)
    assert checked.lake.table_names.table_for("x-orders") == "demo.orders"
    (tmp_path / "ingest.yaml").write_text(yaml.safe_dump(worker))
    loaded = sidecar.load_settings(None, processes.sidecar_settings(scenario, client, "g", tmp_path))
    assert loaded.capacity == DEMO_CONSUMER_CAPACITY


def test_secrets_are_written_by_reference(tmp_path: Path) -> None:
    """The files in the demo's folder refer to the secret and do not hold it."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "demo"}
    client = {
        "bootstrap.servers": "127.0.0.1:1", **login, "sasl.password": f"${{file:{secret}}}"
    }  # fmt: skip
    out = tmp_path / "out"
    out.mkdir()
    scenario = DemoScenario(prefix="x-")
    worker = processes.ingest_settings(scenario, client, "g", out, "-Dx=y")
    sidecar_config = processes.sidecar_settings(scenario, client, "g", out)
    processes.DemoProcesses(out, SystemClock()).write_configs(worker, sidecar_config)
    assert "hunter2" not in "".join(file.read_text() for file in out.iterdir())
    assert (
        ingest.parse_ingest_settings(config_file.load_config_file(out / "ingest.yaml")).consumer_config[
            "sasl.password"
        ]
        == "hunter2"
    )
    loaded = sidecar.load_settings(out / "sidecar.yaml", {})
    assert loaded.client_config["sasl.password"] == "hunter2"
    assert main(["demo", "--kafka", "security.protocol=SSL"]) == 2


def test_without_an_archive_workers_still_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a writable cache there is no class archive, and the JVM gets its plain options."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path / "file"))
    assert jvm_class_archive.find_archive() is None
    assert jvm_class_archive.create_archive() is None
    assert jvm_class_archive.jvm_options(None) == jvm_class_archive.SMALL_JVM_OPTIONS


def test_pyspark_installed_again_needs_a_new_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM refuses an archive whose JARs have changed since, by their times alone, too."""
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path))
    jar = tmp_path / "pyspark" / "jars" / "spark.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    pyspark = SimpleNamespace(version="4", locate_file=tmp_path.joinpath)
    monkeypatch.setattr(jvm_class_archive, "distribution", lambda _name: pyspark)
    place = jvm_class_archive._archive_path()
    place.parent.mkdir()
    place.touch()
    assert jvm_class_archive.find_archive() == place
    os.utime(jar, (1, 1))
    assert jvm_class_archive.find_archive() is None


def test_archive_path_may_hold_blanks() -> None:
    """Spark splits Java options at blanks, so a path is quoted."""
    assert '"-XX:SharedArchiveFile=/a b/c.jsa"' in jvm_class_archive.jvm_options(Path("/a b/c.jsa"))


def test_demo_ends_workers_of_a_killed_demo(tmp_path: Path) -> None:
    """Workers of a killed demo end before the files with their process ids are removed."""
    clear_output_folder(tmp_path, SystemClock())
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    before = ProcessTarget(command, tmp_path / "state", SystemClock())
    (name,) = before.add_replicas(1)
    pid = json.loads((tmp_path / "state" / "workers" / f"{name}.json").read_text())["pid"]
    before.close()
    try:
        assert read_start_ticks(pid) is not None
        clear_output_folder(tmp_path, SystemClock())
        assert read_start_ticks(pid) is None
        assert not (tmp_path / "state").exists()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
