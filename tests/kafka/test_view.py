"""`trimtab top`, `explain` and `doctor` as processes, beside a sidecar that is one too."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.reporting.decision_record import RECORD_SLOTS, DecisionRecord
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

PARTITIONS = 6
Asked = Callable[..., Any]


@pytest.fixture
def config(config: dict[str, Any], bootstrap: str, group: str, tmp_path: Path) -> dict[str, Any]:
    """Settings of consumers, which follow the topics of a sidecar of this test alone."""
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
    """File of the sidecar's settings."""
    del config
    return str(tmp_path / "sidecar.yaml")


@pytest.fixture
def asked(file: str) -> Asked:
    """Run a command on the group; gives its JSON, None where it fails."""

    def ask(*words: str) -> Any:
        command = [sys.executable, "-m", "trimtab.cli", *words, "-c", file, "--format", "json"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "Traceback" not in ran.stderr, ran.stderr
        return json.loads(ran.stdout) if ran.returncode == 0 else None

    return ask


@pytest.fixture
def sidecar(file: str, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Start a sidecar that gives advice; it is stopped at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", file]
        with (tmp_path / "sidecar.log").open("ab") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log))

    yield start
    for process in running:
        process.terminate()
        assert process.wait(60) == 0


def test_a_group_is_shown_with_and_without_a_sidecar(
    topic: Any, start: Any, feed: Any, asked: Asked, sidecar: Any, eventually: Any
) -> None:
    """Nobody steers; then a sidecar does, and says why, from any machine, what moved included."""
    name = topic(partitions=PARTITIONS)
    feed.write(name, PARTITIONS, 600)
    workers = [start(n, [name]) for n in ("one", "two")]
    eventually(lambda: all(w.owned for w in workers))

    alone = asked("top", "--once", "--window", "2 s")
    assert alone["sidecar_status"].startswith("no sidecar manages this group")
    assert {row["name"]: row["state"] for row in alone["consumers"]} == {"one": "running", "two": "running"}
    assert sum(row["load"]["partitions"] for row in alone["consumers"]) == PARTITIONS
    assert asked("explain") is None

    sidecar()
    eventually(lambda: _reads(asked("explain")) == PARTITIONS, 100)
    leaves = next(w for w in workers if w.owned)
    (stays,) = (w.name for w in workers if w is not leaves)
    leaves.stop()  # what it read must go to the other, however the two shared
    eventually(lambda: stays in _targets(asked("explain")), 100)
    found = asked("explain", "-n", "3")
    assert found["decision"]["partitions_by_instance"] == {stays: PARTITIONS}
    assert found["history"]

    steered = asked("top", "--once")
    assert steered["is_managed"]
    assert (steered["running"], steered["planned"]) == (1, 1)
    assert steered["rate_source"] == "published by a sidecar"
    assert all(row["capacity"] == 10_000 for row in steered["consumers"])
    eventually(lambda: _well(asked("doctor")), 100)


def _reads(told: Any) -> int:
    """Return how many partitions the last verdict knew to be read."""
    return 0 if told is None else sum(told["decision"]["partitions_by_instance"].values())


def _targets(told: Any) -> set[str]:
    """Return whom the moves that were seen last went to."""
    moved = None if told is None else told["last_observed_moves"]
    return set() if moved is None else {move["target"] for move in moved["observed_moves"]}


def _well(told: Any) -> bool:
    """Tell whether a doctor found nothing wrong, and that the consumers follow the plan."""
    if told is None:
        return False
    levels = {found["check"]: found["level"] for found in told["findings"]}
    return levels["consumers follow the plan"] == "ok" and levels["sidecar"] == "ok"


def test_verdicts_are_kept_round_and_round(
    config: dict[str, Any], file: str, group: str, admin: AdminClient
) -> None:
    """More verdicts than slots: the newest of each slot come back, from a compacted topic."""
    del config
    settings = load_settings(Path(file), {})
    board = ControlTopicStore(settings, admin)
    assert board.read_decisions() == ()
    for number in range(RECORD_SLOTS + 5):
        made = DecisionRecord(
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
        board.write_decision(made)
    board.write_decision(
        DecisionRecord("other", 1, 1, 1, 1, 1, 1, ScalingAction.HOLD, (), DecisionMetrics(), 1.0, 1.0)
    )
    kept = ControlTopicStore(settings, admin).read_decisions()
    assert [record.number for record in kept] == list(range(5, RECORD_SLOTS + 5))
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, settings.decision_topic)]).values()
    assert asked.result(10)["cleanup.policy"].value == "compact"


def test_looking_publishes_nothing(file: str, asked: Asked, admin: AdminClient) -> None:
    """Neither command makes a topic, not even of a group that nobody knows."""
    asked("top", "--once", "--window", "1 s")
    assert asked("explain") is None
    settings = load_settings(Path(file), {})
    there = admin.list_topics(timeout=10).topics
    assert not {settings.plan_topic, settings.write_rate_topic, settings.decision_topic} & set(there)
