"""`trimtab plan` on a real group, certificates included."""

import json
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from trimtab.cli.main import main
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker

RATES = (60.0, 50.0, 40.0, 30.0, 20.0, 10.0)


@pytest.fixture
def published(bootstrap: str, group: str, admin: AdminClient, tmp_path: Path) -> Callable[..., str]:
    """Publish speeds as a sidecar does; gives the settings file that finds them."""

    def publish(topic: str, *rates: float) -> str:
        names = {"plan-topic": f"{group}.plan", "write-rate-topic": f"{group}.speed"}
        found = {"bootstrap": bootstrap, "group": group, "capacity": "100 B/s", "headroom": 1.0}
        partitions = {n: PartitionLoad(bytes_per_s=rate) for n, rate in enumerate(rates)}
        speeds = TopicWriteRates(group, topic, time(), 30.0, "test", partitions)
        ControlTopicStore(load_settings(None, {**found, **names}), admin).publish([speeds])
        file = tmp_path / "plan.yaml"
        file.write_text(json.dumps({**found, **names}))
        return str(file)

    return publish


def test_a_live_group_is_certified(
    topic: Any, start: Any, published: Any, eventually: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What each heuristic would do with two live members, and how far it is from the optimum."""
    name = topic(partitions=len(RATES))
    one, two = start("one", [name]), start("two", [name])
    eventually(lambda: one.owned and two.owned)
    config = published(name, *RATES)
    words = ["plan", "--config", config, "--certify", "--time-limit", "5s", "--format", "json"]
    assert main([*words, "--heuristic", "mbf", "mwf"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["members"], body["speeds"]) == (2, "published by a sidecar")
    assert list(body["heuristics"]) == ["mbf", "mwf"]
    for row in body["heuristics"].values():
        made = row["certificate"]
        assert made["complete"]
        assert made["value"] == pytest.approx(row["consumers"] + 0.5 * row["r_score"])
        assert 3 <= made["lower_bound"] <= made["value"] * (1 + 1e-9)


def test_a_group_that_nobody_reads_is_planned(
    topic: Any, published: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without members every consumer is new; the table says how far each is from the optimum."""
    config = published(topic(partitions=len(RATES)), *RATES)
    assert main(["plan", "--config", config, "--certify", "--heuristic", "bfd"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0 members" in said
    assert "at most 0.0 %" in said
