"""One sidecar with several groups, on a real broker: what one group does touches no other."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from support.many_groups import ManyGroupsSidecar
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker


Start = Callable[..., ManyGroupsSidecar]


@pytest.fixture
def common(bootstrap: str, group: str) -> dict[str, Any]:
    """The settings that all groups of a test share."""
    return {
        "bootstrap": bootstrap,
        "capacity": "1 MB/s",
        "interval": "500 ms",
        "window": "2 s",
        "timeout": "3 s",
        **{f"{name}-topic": f"{group}.{name}" for name in ("plan", "write-rate", "decision")},
    }


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start sidecars; all are killed after the test."""
    running: list[ManyGroupsSidecar] = []

    def start(body: dict[str, Any], *flags: str) -> ManyGroupsSidecar:
        running.append(ManyGroupsSidecar(tmp_path / str(len(running)), body, *flags))
        return running[-1]

    yield start
    for sidecar in running:
        sidecar.close()


def test_each_group_has_its_own_decisions_and_a_bad_entry_touches_no_other(
    start: Start, common: dict[str, Any], group: str, topic: Any, admin: Any, eventually: Any
) -> None:
    """Both groups get plans with their own capacity; the third entry's error is told, and nothing else."""
    orders, clicks = topic(partitions=2), topic(partitions=3)
    one, two, bad = f"{group}-1", f"{group}-2", f"{group}-3"
    entries = [
        {"group": one, "topics": orders},
        {"group": two, "topics": clicks, "capacity": "2 MB/s"},
        {"group": bad, "topics": clicks, "min": 9, "max": 3},
    ]
    sidecar = start({**common, "groups": entries})
    eventually(lambda: sidecar.states() == {one: "managed", two: "managed", bad: "failed"}, 20)
    assert "groups, entry 3: min=9 is above max=3" in sidecar.groups()[bad]["error"]
    assert json.loads(sidecar.get("/groups"))["round"]["groups"] == 2

    for name, capacity, partitions in ((one, 1e6, 2), (two, 2e6, 3)):
        values = {**common, "group": name, "capacity": capacity}
        store = ControlTopicStore(load_settings(None, values), admin)
        eventually(lambda s=store: s.read_plan() is not None)
        plan = store.read_plan()
        assert plan is not None
        assert plan.capacity == capacity
        eventually(lambda s=store: s.read_decisions())
        assert {record.group for record in store.read_decisions()} == {name}
        assert json.loads(sidecar.get(f"/decisions?group={name}"))[-1]["metrics"]["partitions"] == partitions
        assert f'trimtab_partitions{{group="{name}"}} {partitions}.0' in sidecar.get("/metrics")
    assert f"{one}: " in sidecar.log.read_text()

    with pytest.raises(HTTPError, match="404"):
        sidecar.get("/decisions")
    explained = _call("explain", "-c", str(sidecar.config), "--group", two)
    assert two in explained.stdout
    unnamed = _call("explain", "-c", str(sidecar.config))
    assert unnamed.returncode == 2
    assert one in unnamed.stderr
    sidecar.stop(signal.SIGTERM)
    assert sidecar.process.returncode == 0


def _call(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "trimtab.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_records_are_measured_and_topics_shared(
    start: Start, common: dict[str, Any], group: str, topic: Any, bootstrap: str, eventually: Any
) -> None:
    """Two groups of one topic each know its write rate; a pattern finds a group that appears later."""
    shared = topic(partitions=2)
    one, two, late = f"{group}-1", f"{group}-2", f"{group}-late"
    entries = [{"group": one, "topics": shared}, {"group": two, "topics": shared}]
    sidecar = start({**common, "groups": entries, "group-pattern": f"{group}-l.*", "topics": shared})
    eventually(lambda: sidecar.states() == {one: "managed", two: "managed"}, 20)
    producer = Producer({"bootstrap.servers": bootstrap})

    def both_know_the_rate() -> bool:
        producer.produce(shared, b"x" * 1000)
        producer.poll(0)
        return all(sidecar.groups()[name]["required_bytes_per_s"] for name in (one, two))

    eventually(both_know_the_rate, 20)
    producer.flush()
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": late})
    reader.commit(offsets=[TopicPartition(shared, 0, 0)], asynchronous=False)
    reader.close()
    eventually(lambda: sidecar.states().get(late) == "managed", 20)


def test_a_target_that_fails_or_hangs_touches_no_other_group(
    start: Start, common: dict[str, Any], group: str, topic: Any, eventually: Any, tmp_path: Path
) -> None:
    """One group's API server accepts connections and never answers; the other's iterations go on."""
    read = topic(partitions=2)
    one, hanging = f"{group}-1", f"{group}-2"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_build_kubeconfig(silent.getsockname()[1])))
        target = {"target": "kubernetes", "workload": "deployment/lake", "namespace": "default"}
        entries = [{"group": one, "topics": read}, {"group": hanging, "topics": read, **target}]
        sidecar = start({**common, "kubeconfig": str(kubeconfig), "groups": entries})
        eventually(lambda: sidecar.states().get(one) == "managed", 20)
        eventually(lambda: "did not answer" in sidecar.groups()[hanging].get("reasons", ""), 20)

        # while the other waits 3 s for its target in each iteration, this one has one every 0.5 s
        begin = sidecar.count_iterations(one), sidecar.count_iterations(hanging)
        eventually(lambda: sidecar.count_iterations(one) - begin[0] >= 12, 20)
        assert sidecar.count_iterations(hanging) - begin[1] <= 5


def _build_kubeconfig(port: int) -> dict[str, Any]:
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    body = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
    return {"apiVersion": "v1", "kind": "Config", "current-context": "c", **body}
