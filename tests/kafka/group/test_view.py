"""`trimtab top`, `explain` and `doctor` as processes, with and without a sidecar process."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from trimtab.common.control_topics.write_rates import TopicWriteRates
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.records.decision_record import RECORD_SLOTS, DecisionRecord
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker

PARTITIONS = 6
RunJson = Callable[..., Any]


@pytest.fixture
def config(config: dict[str, Any], bootstrap: str, group: str, tmp_path: Path) -> dict[str, Any]:
    """Consumer settings with control topics of their own for each test."""
    names = {name: f"{group}.{name}" for name in ("plan", "write-rate", "decision")}
    body = {
        "bootstrap": bootstrap,
        "group": group,
        "capacity": "10 kB/s",
        "interval": "500 ms",
        "window": "2 s",
        "offset-reset": "earliest",
        **{f"{name}-topic": topic for name, topic in names.items()},
    }
    (tmp_path / "sidecar.yaml").write_text(json.dumps(body))
    topics = {"trimtab.plan.topic": names["plan"], "trimtab.write.rate.topic": names["write-rate"]}
    return {**config, **topics}


@pytest.fixture
def file(config: dict[str, Any], tmp_path: Path) -> str:
    """Path of the sidecar's settings file."""
    del config
    return str(tmp_path / "sidecar.yaml")


@pytest.fixture
def run_json(file: str) -> RunJson:
    """Run a command for the group; returns its JSON output, None if it fails."""

    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "trimtab.cli", *arguments, "-c", file, "--format", "json"]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "Traceback" not in completed.stderr, completed.stderr
        return json.loads(completed.stdout) if completed.returncode == 0 else None

    return run


@pytest.fixture
def sidecar(file: str, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Start a sidecar without a scaling target; it is stopped after the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", file]
        with (tmp_path / "sidecar.log").open("ab") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log))

    yield start
    for process in running:
        process.terminate()
        assert process.wait(60) == 0


def test_commands_show_the_group_with_and_without_a_sidecar(
    topic: Any, start: Any, feed: Any, run_json: RunJson, sidecar: Any, eventually: Any
) -> None:
    """`top` shows an unmanaged group; once a sidecar runs, `explain` shows its decision and moves."""
    name = topic(partitions=PARTITIONS)
    feed.write(name, PARTITIONS, 600)
    workers = [start(n, [name]) for n in ("one", "two")]
    eventually(lambda: all(w.owned for w in workers))

    alone = run_json("top", "--once", "--window", "2 s")
    assert alone["sidecar_status"].startswith("no sidecar manages this group")
    assert {row["name"]: row["state"] for row in alone["consumers"]} == {"one": "running", "two": "running"}
    assert sum(row["load"]["partitions"] for row in alone["consumers"]) == PARTITIONS
    assert run_json("explain") is None

    sidecar()
    eventually(lambda: _count_partitions(run_json("explain")) == PARTITIONS, 100)
    leaves = next(w for w in workers if w.owned)
    (stays,) = (w.name for w in workers if w is not leaves)
    leaves.stop()  # all of its partitions move to the other worker
    eventually(lambda: stays in _targets(run_json("explain")), 100)
    explanation = run_json("explain", "-n", "3")
    assert explanation["decision"]["partitions_by_instance"] == {stays: PARTITIONS}
    assert explanation["history"]

    managed = run_json("top", "--once")
    assert managed["is_managed"]
    assert (managed["running"], managed["planned"]) == (1, 1)
    assert managed["rate_source"] == "published by a sidecar"
    assert all(row["capacity"] == 10_000 for row in managed["consumers"])
    eventually(lambda: _is_healthy(run_json("doctor")), 100)


def _count_partitions(report: Any) -> int:
    """Return the number of assigned partitions in the last decision."""
    return 0 if report is None else sum(report["decision"]["partitions_by_instance"].values())


def _targets(report: Any) -> set[str]:
    """Return the targets of the last observed moves."""
    moved = None if report is None else report["last_observed_moves"]
    return set() if moved is None else {move["target"] for move in moved["observed_moves"]}


def _is_healthy(report: Any) -> bool:
    """Return whether the doctor reports a sidecar and consumers that follow the plan."""
    if report is None:
        return False
    levels = {finding["check"]: finding["level"] for finding in report["findings"]}
    return levels["consumers follow the plan"] == "ok" and levels["sidecar"] == "ok"


def test_decision_topic_keeps_the_newest_record_of_each_slot(
    config: dict[str, Any], file: str, group: str, admin: AdminClient
) -> None:
    """With more decisions than slots, the newest of each slot is read from the compacted topic."""
    del config
    settings = load_settings(Path(file), {})
    store = ControlTopicStore(settings, admin)
    assert store.read_decisions() == ()
    for number in range(RECORD_SLOTS + 5):
        record = DecisionRecord(
            group,
            number,
            number,
            number,
            1,
            10.0,
            1,
            ScalingAction.HOLD,
            ("is right",),
            DecisionMetrics(),
            1e6,
            0.9,
        )
        store.write_decision(record)
    store.write_decision(
        DecisionRecord("other", 1, 1, 1, 1, 1, 1, ScalingAction.HOLD, (), DecisionMetrics(), 1.0, 1.0)
    )
    records = ControlTopicStore(settings, admin).read_decisions()
    assert [r.number for r in records] == list(range(5, RECORD_SLOTS + 5))
    (described,) = admin.describe_configs(
        [ConfigResource(ResourceType.TOPIC, settings.decision_topic)]
    ).values()
    assert described.result(10)["cleanup.policy"].value == "compact"


def test_old_values_of_control_topics_are_soon_compacted(file: str, group: str, admin: AdminClient) -> None:
    """With the broker's segments of 1 GB a starting consumer would read hundreds of old values."""
    settings = load_settings(Path(file), {})
    rates = TopicWriteRates(group, "t", 1.0, 30.0, "offsets", {})
    ControlTopicStore(settings, admin).publish([rates])
    names = (settings.plan_topic, settings.write_rate_topic)
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    for answer in described.values():
        assert int(answer.result(10)["segment.bytes"].value) < 10_000_000
        assert int(answer.result(10)["segment.ms"].value) <= 3_600_000


def test_diagnostic_commands_create_no_topic(file: str, run_json: RunJson, admin: AdminClient) -> None:
    """`top` and `explain` create no control topic, even for an unknown group."""
    run_json("top", "--once", "--window", "1 s")
    assert run_json("explain") is None
    settings = load_settings(Path(file), {})
    topics = admin.list_topics(timeout=10).topics
    assert not {settings.plan_topic, settings.write_rate_topic, settings.decision_topic} & set(topics)
