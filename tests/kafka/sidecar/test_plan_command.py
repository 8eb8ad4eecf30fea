"""`trimtab plan` on a real group."""

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
def publish_rates(bootstrap: str, group: str, admin: AdminClient, tmp_path: Path) -> Callable[..., str]:
    """Publish write rates as a sidecar does; return the settings file of their topics."""

    def publish(topic: str, *rates: float) -> str:
        names = {"plan-topic": f"{group}.plan", "write-rate-topic": f"{group}.speed"}
        values = {"bootstrap": bootstrap, "group": group, "capacity": "100 B/s", "headroom": 1.0}
        partitions = {n: PartitionLoad(bytes_per_s=rate) for n, rate in enumerate(rates)}
        rates_value = TopicWriteRates(group, topic, time(), 30.0, "test", partitions)
        ControlTopicStore(load_settings(None, {**values, **names}), admin).publish([rates_value])
        file = tmp_path / "plan.yaml"
        file.write_text(json.dumps({**values, **names}))
        return str(file)

    return publish


def test_plan_evaluates_a_live_group(
    topic: Any, start: Any, publish_rates: Any, eventually: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plan` evaluates each heuristic for two live members, by the rates that a sidecar published."""
    name = topic(partitions=len(RATES))
    one, two = start("one", [name]), start("two", [name])
    eventually(lambda: one.owned and two.owned)
    config = publish_rates(name, *RATES)
    command = ["plan", "--config", config, "--format", "json"]
    assert main([*command, "--heuristic", "mbf", "mwf"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["members"], body["rate_source"]) == (2, "published by a sidecar")
    assert list(body["heuristics"]) == ["mbf", "mwf"]
    assert all(row["consumers"] >= 3 for row in body["heuristics"].values())


def test_plan_works_without_members(
    topic: Any, publish_rates: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without members all consumers are new."""
    config = publish_rates(topic(partitions=len(RATES)), *RATES)
    assert main(["plan", "--config", config, "--heuristic", "bfd"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "0 members" in output
