"""The parts of deploy/compose, as processes with the settings files that stand there."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen
from uuid import uuid4

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from object_store.ingest import COUNT, produce
from object_store.rig import ObjectStoreRig
from object_store.servers import REGION, free_port
from trimtab.cli.broker.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.object_store

COMPOSE: Final = Path(__file__).parents[2] / "deploy" / "compose"
CONSUMERS: Final = ("consumer-1", "consumer-2")


@pytest.fixture
def own_broker() -> Iterator[str]:
    """A broker without topics, which may have the names of the compose file."""
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


def read_yaml(name: str) -> Any:
    return yaml.safe_load((COMPOSE / name).read_text())


def list_scraped_services() -> dict[str, int]:
    """Return the port of each service that Prometheus asks."""
    jobs = read_yaml("prometheus.yaml")["scrape_configs"]
    targets = [target for job in jobs for config in job["static_configs"] for target in config["targets"]]
    return {service: int(port) for service, _, port in (target.partition(":") for target in targets)}


def start(command: list[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "trimtab.cli", *command], stdout=output, stderr=output, env=os.environ
        )


def answers_metrics(port: int, metric: str) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return metric in answer.read().decode()
    except OSError:
        return False


def count_rows(port: int) -> float:
    """Return the rows that a consumer has written, by its metrics."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return 0
    return sum(float(line.split()[-1]) for line in lines if line.startswith("trimtab_written_rows_total"))


@dataclass
class RunningParts:
    """The consumers and the sidecar of the compose file, and their ports by service."""

    ports: dict[str, int]
    processes: "list[subprocess.Popen[bytes]]"

    def count_rows(self) -> float:
        return sum(count_rows(self.ports[name]) for name in CONSUMERS)

    def stop(self) -> list[int]:
        """Return the exit codes."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        return [process.wait(120) for process in self.processes]


@pytest.fixture
def parts(
    own_broker: str, object_store: ObjectStoreRig, credentials: None, tmp_path: Path
) -> Iterator[RunningParts]:
    """The parts with records to read."""
    del credentials
    admin = AdminClient({"bootstrap.servers": own_broker})
    admin.create_topics([NewTopic("orders", 8)])["orders"].result(30)
    produce(own_broker, "orders")
    assert object_store.catalog is not None
    ports = {service: free_port() for service in list_scraped_services()}
    assert set(ports) == {"sidecar", *CONSUMERS}
    ingest = (
        read_yaml("ingest.yaml")
        | {
            "bootstrap.servers": own_broker,
            "lake.s3.endpoint": object_store.store.address,
            "lake.s3.region": REGION,  # of the test's store
            "lake.table": f"compose_{uuid4().hex[:8]}.{{topic}}",  # the store, which keeps offsets, is shared
            "lake.catalog.uri": object_store.catalog.address,
        }
    )
    running = RunningParts(ports, [])
    try:
        for name in CONSUMERS:
            file = tmp_path / f"{name}.yaml"
            file.write_text(yaml.safe_dump(ingest | {"trimtab.metrics.port": ports[name]}))
            command = ["ingest", "--config", str(file), "--instance", name]
            running.processes.append(start(command, tmp_path / f"{name}.log"))
        sidecar = read_yaml("sidecar.yaml") | {"bootstrap": own_broker, "port": ports["sidecar"]}
        (tmp_path / "sidecar.yaml").write_text(yaml.safe_dump(sidecar))
        command = ["sidecar", "--config", str(tmp_path / "sidecar.yaml")]
        running.processes.append(start(command, tmp_path / "sidecar.log"))
        yield running
    finally:
        running.stop()


def test_the_parts_of_compose_work_together(parts: RunningParts, eventually: Callable[..., None]) -> None:
    """Consumers write each record once into S3; all that Prometheus asks answer; each ends with 0."""
    eventually(lambda: parts.count_rows() == COUNT, 120)
    eventually(lambda: answers_metrics(parts.ports["sidecar"], "trimtab_partitions"), 60)
    assert parts.stop() == [0, 0, 0]


@contextmanager
def running_prometheus(folder: Path, ports: dict[str, int]) -> Iterator[str]:
    """Yield the address of a Prometheus with the compose file's configuration and rules."""
    config = read_yaml("prometheus.yaml")
    config["rule_files"] = [str(COMPOSE.parent / "prometheus" / "rules.yaml")]
    for static in (static for job in config["scrape_configs"] for static in job["static_configs"]):
        static["targets"] = [f"127.0.0.1:{ports[target.partition(':')[0]]}" for target in static["targets"]]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={folder}/tsdb"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield f"http://{address}/api/v1"
    finally:
        process.terminate()
        process.wait(60)


def ask(address: str) -> Any:
    """Return the data of Prometheus' answer, {} while it does not answer."""
    try:
        with urlopen(address, timeout=5) as answer:  # noqa: S310 - the test's own Prometheus
            return json.load(answer)["data"]
    except OSError:
        return {}


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus, a package of Debian")
def test_prometheus_scrapes_each_part_and_evaluates_the_rules(
    parts: RunningParts, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """Every target is up, the consumers' rows are there, and each alert is evaluated without an error."""
    with running_prometheus(tmp_path, parts.ports) as api:

        def is_up() -> bool:
            targets = ask(f"{api}/targets").get("activeTargets", ())
            return [target["health"] for target in targets] == ["up"] * 3

        def has_all_rows() -> bool:
            found = ask(f"{api}/query?query=sum(trimtab_written_rows_total)").get("result", ())
            return [float(one["value"][1]) for one in found] == [COUNT]

        def list_rules() -> list[Any]:
            return [rule for group in ask(f"{api}/rules").get("groups", ()) for rule in group["rules"]]

        eventually(is_up, 60)
        eventually(has_all_rows, 120)
        eventually(lambda: list_rules() and all(rule["health"] == "ok" for rule in list_rules()), 120)
        assert {rule["name"] for rule in list_rules()} >= {"TrimtabSidecarAbsent", "TrimtabBacklogOverdue"}
        assert not ask(f"{api}/query?query=absent(trimtab_is_leader)")["result"]


def test_compose_mounts_what_exists() -> None:
    """Each mounted file stands in the repository, and Prometheus asks services and ports that there are."""
    services = read_yaml("compose.yaml")["services"]
    mounted = [
        one.split(":")[0]
        for service in services.values()
        for one in service.get("volumes", ())
        if one[0] == "."
    ]
    assert mounted
    assert [path for path in mounted if not (COMPOSE / path).is_file()] == []
    scraped = list_scraped_services()
    assert set(scraped) <= set(services)
    assert scraped["sidecar"] == read_yaml("sidecar.yaml")["port"]
    assert {scraped[name] for name in CONSUMERS} == {read_yaml("ingest.yaml")["trimtab.metrics.port"]}
