"""A stuck partition on a real broker: every surface tells it, and that it has ended."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RawPartition
from sidecar_bench import Flow, run_beside_readers

from trimtab.cli.main import main

pytestmark = pytest.mark.broker

STUCK = "condition PartitionsStuck: "


@dataclass
class StuckGroup:
    """A consumer that can stop at one partition, and the sidecar that advises its group."""

    config: Path
    log: Path
    is_stuck: Event

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def ask(self, path: str) -> str:
        address = re.search(r"decisions at (http://\S+)", self.log.read_text())
        assert address
        with urlopen(f"{address[1]}{path}", timeout=30) as answer:  # noqa: S310 - the sidecar's own page
            return str(answer.read().decode())


def read_all_but_one(consumer: Consumer, first: RawPartition, is_stuck: Event, stop: Event) -> None:
    """Read; while it is stuck the first partition is paused, as by a record that fails again and again."""
    is_paused = False
    while not stop.is_set():
        consumer.consume(500, timeout=0.05)
        if is_stuck.is_set() != is_paused and consumer.assignment():
            is_paused = is_stuck.is_set()
            (consumer.pause if is_paused else consumer.resume)([first])
    consumer.close()


@pytest.fixture
def stuck(bootstrap: str, group: str, topic: Callable[..., str], tmp_path: Path) -> Iterator[StuckGroup]:
    read, log, config = topic(partitions=8), tmp_path / "sidecar.log", tmp_path / "sidecar.yaml"
    settings = {"bootstrap": bootstrap, "group": group, "topics": read, "capacity": "100 kB/s"}
    settings |= {
        "interval": "500 ms",
        "window": "2 s",
        "backlog-grace": "2 s",
        "plan-topic": f"{group}.plans",
    }
    settings |= {"write-rate-topic": f"{group}.rates", "decision-topic": f"{group}.decisions"}
    config.write_text(yaml.safe_dump(settings))
    client = {"bootstrap.servers": bootstrap, "group.id": group, "auto.commit.interval.ms": 500}
    consumer = Consumer({**client, "client.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([read])
    stop, is_stuck = Event(), Event()
    reading = Thread(target=read_all_but_one, args=(consumer, RawPartition(read, 0), is_stuck, stop))
    with run_beside_readers(config, log, Flow(bootstrap, read), reading, stop):
        yield StuckGroup(config, log, is_stuck)


def test_a_stuck_partition_is_told_everywhere_until_it_is_read(
    stuck: StuckGroup, capsys: pytest.CaptureFixture[str], eventually: Callable[..., None]
) -> None:
    """Before, `doctor` said that all checks passed over it."""

    def run(*words: str) -> tuple[int, str]:
        code = main([*words, "-c", str(stuck.config)])
        return code, capsys.readouterr().out

    def find_doctors() -> dict[str, Any]:
        findings = json.loads(run("doctor", "--format", "json")[1])["findings"]
        return {one["check"]: one for one in findings if one["check"].startswith(("Partitions", "Consumers"))}

    eventually(lambda: sum("hold:" in line for line in stuck.lines) >= 10, 120)
    assert find_doctors() == {}
    stuck.is_stuck.set()
    eventually(lambda: any(STUCK in line for line in stuck.lines), 120)
    code, text = run("doctor")
    assert code == 1
    assert re.search(r"FAILED   PartitionsStuck: \S+-0 seems stuck: reader has committed nothing of it", text)
    assert "all checks passed" not in text
    for command in (("explain",), ("top", "--once")):
        assert "PartitionsStuck: " in run(*command)[1]
    assert re.search(
        r'trimtab_condition{[^}]*severity="critical",type="PartitionsStuck"} 1.0', stuck.ask("/metrics")
    )
    for path in ("/groups", "/decisions", "/history"):
        assert '"type":"PartitionsStuck"' in stuck.ask(path).replace(": ", ":")
    stuck.is_stuck.clear()
    eventually(lambda: any("condition PartitionsStuck has ended" in line for line in stuck.lines), 120)
    assert find_doctors() == {}
    assert sum(STUCK in line for line in stuck.lines) == 1  # not in each iteration
