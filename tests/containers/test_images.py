"""The images, run as in a pod: no root user, a read-only root file system."""

import hashlib
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Producer
from docker.errors import BuildError

from cluster.control_plane import HOST, free_ports
from containers.engine import base_image
from faults.settings import table
from faults.tables import Iceberg

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

ROOT: Final = Path(__file__).parents[2]
TARGETS: Final = ("sidecar", "consumer")
USER: Final = "10001:10001"
RECORDS: Final = 1000
BUILD_TOOLS: Final = ("cc", "gcc", "make", "pip", "pip3", "javac", "git", "curl")
TIMEOUT: Final = 180.0


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@pytest.fixture(scope="module")
def images(docker: Any) -> dict[str, Any]:
    """Both images by build target."""
    args = {"BASE": base_image(docker)}
    return {target: _build(docker, target, args) for target in TARGETS}


def _build(docker: Any, target: str, args: dict[str, str]) -> Any:
    source = {"path": str(ROOT), "dockerfile": "deploy/Dockerfile", "target": target}
    try:
        built, _ = docker.images.build(
            **source, buildargs=args, network_mode="host", rm=True, tag=f"trimtab-test-{target}"
        )
    except BuildError as error:
        output = "".join(line.get("stream", "") for line in error.build_log)
        pytest.fail(f"{error}\n{output[-3000:]}")
    return built


@contextmanager
def running(docker: Any, image: Any, arguments: list[str], **options: Any) -> Generator[Any]:
    """Run a container as a pod does, in the host's network; removes it after the block."""
    container = docker.containers.run(
        image,
        arguments,
        detach=True,
        read_only=True,
        user=USER,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode="host",
        tmpfs={"/tmp": "exec,mode=1777"},  # noqa: S108 - libraries can be loaded from an emptyDir too
        **options,
    )
    try:
        yield container
    finally:
        container.remove(force=True)


def read_log(container: Any) -> str:
    return str(container.logs().decode())


def is_healthy(container: Any) -> bool:
    """Return whether the image's health check has passed."""
    container.reload()
    assert container.status == "running", read_log(container)
    return bool(container.attrs["State"]["Health"]["Status"] == "healthy")


def fetch(url: str) -> str:
    try:
        with urlopen(url, timeout=5) as response:  # noqa: S310 - the container's own page
            return str(response.read().decode())
    except (URLError, OSError):
        return ""


def write_records(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"x" * 100, key=str(number))
    assert producer.flush(30) == 0


def write_settings(folder: Path, settings: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Write a settings file and return its volume."""
    file = folder / "settings.yaml"
    file.write_text(yaml.safe_dump(settings))
    file.chmod(0o644)
    return {str(file): {"bind": "/etc/trimtab/settings.yaml", "mode": "ro"}}


def test_sidecar_image_is_less_than_half_of_the_consumers(
    docker: Any, images: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The sidecar image, without Spark and Java, adds less than half of the consumer image's size."""
    all_images = {"base": docker.images.get(base_image(docker)), **images}
    sizes = {f"{name}_mb": round(image.attrs["Size"] / 1e6) for name, image in all_images.items()}
    with capsys.disabled():
        print(f"\nRESULT {json.dumps(sizes)}")  # noqa: T201 - the RESULT line
    assert 2 * (sizes["sidecar_mb"] - sizes["base_mb"]) < sizes["consumer_mb"] - sizes["base_mb"]


def test_the_plugin_image_copies_the_jar_with_its_hash(docker: Any, tmp_path: Path) -> None:
    """As an init container that fills the broker's volume."""
    image = _build(docker, "broker-plugin", {"BASE": base_image(docker)})
    tmp_path.chmod(0o777)
    docker.containers.run(image, volumes={str(tmp_path): {"bind": "/mnt"}}, network_mode="host", remove=True)
    (jar,) = tmp_path.iterdir()
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    assert (ROOT / "broker_plugin" / "plugin.sha256").read_text().split() == [digest, jar.name]


@pytest.mark.parametrize("target", TARGETS)
def test_images_contain_no_build_tools(docker: Any, images: dict[str, Any], target: str) -> None:
    """The images have no compiler, installer, sources or root user; only the consumer has Java."""
    lookup = "; ".join(f"command -v {name}" for name in (*BUILD_TOOLS, "java"))
    script = f"{lookup}; id -u; ls /src; python3 -m pip --version; exit 0"
    output = docker.containers.run(
        images[target], ["-c", script], entrypoint="sh", network_mode="host", remove=True, stderr=True
    ).decode()
    tools = [line for line in output.splitlines() if line.startswith("/") and ":" not in line]
    assert [Path(line).name for line in tools] == (["java"] if target == "consumer" else [])
    assert "10001" in output.splitlines()
    assert "No module named pip" in output
    assert "/src" in output
    assert "No such file" in output


@pytest.mark.broker
def test_sidecar_image_runs(  # noqa: PLR0913 - fixtures
    docker: Any,
    images: dict[str, Any],
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    tmp_path: Path,
    *,
    eventually: Eventually,
) -> None:
    """The sidecar container measures a group, passes its health check and ends with 0 on SIGTERM."""
    name, (port,) = topic(partitions=2), free_ports(1)
    write_records(bootstrap, name)
    settings = {"bootstrap": bootstrap, "group": group, "topics": [name], "capacity": "1 MB/s"}
    volumes = write_settings(tmp_path, {**settings, "interval": "1 s", "window": "4 s"})
    page = f"http://{HOST}:{port}"
    arguments = ["sidecar", "--config", "/etc/trimtab/settings.yaml", "--port", str(port)]
    environment = {"TRIMTAB_HEALTH": f"{page}/healthz"}
    with running(docker, images["sidecar"], arguments, volumes=volumes, environment=environment) as container:
        eventually(lambda: "last iteration" in fetch(f"{page}/healthz"), TIMEOUT)
        eventually(lambda: "trimtab_write_rate_bytes_per_second" in fetch(f"{page}/metrics"), TIMEOUT)
        eventually(lambda: is_healthy(container), TIMEOUT)
        container.stop(timeout=30)
        assert container.wait()["StatusCode"] == 0, read_log(container)


@pytest.mark.broker
def test_consumer_image_writes_a_table(  # noqa: PLR0913 - fixtures
    docker: Any,
    images: dict[str, Any],
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    tmp_path: Path,
    *,
    eventually: Eventually,
) -> None:
    """The consumer container writes every record once to a table on a volume, without downloads."""
    name, (port,) = topic(partitions=2), free_ports(1)
    write_records(bootstrap, name)
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(0o777)  # the container's user differs from the test's
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "topics": [name],
        "lake.warehouse": str(lake),
        "lake.table": "shop.{topic}",
        "batch.max.age": "2 s",
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
    }
    volumes = write_settings(tmp_path, settings) | {str(lake): {"bind": str(lake), "mode": "rw"}}
    arguments = ["ingest", "--config", "/etc/trimtab/settings.yaml", "--metrics-port", str(port)]
    environment = {"TRIMTAB_HEALTH": f"http://{HOST}:{port}/healthz"}
    with running(
        docker, images["consumer"], arguments, volumes=volumes, environment=environment
    ) as container:
        eventually(lambda: is_healthy(container), TIMEOUT)
        eventually(lambda: count_rows(lake, name) >= RECORDS, TIMEOUT)
        container.stop(timeout=120)
        assert container.wait()["StatusCode"] == 0, read_log(container)
        assert "fetching" not in read_log(container)
    assert count_rows(lake, name) == RECORDS
    assert (lake / "catalog.db").stat().st_uid == 10001


def count_rows(lake: Path, topic: str) -> int:
    """Return the number of rows of the topic's table; 0 while it does not exist."""
    return Iceberg(lake).count(table(topic)) if (lake / "catalog.db").exists() else 0
