"""The two images, built and run as in a pod: no root, a root file system that cannot be written."""

import json
from collections.abc import Callable, Generator, Iterator
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
from containers.engine import base, engine
from faults.settings import table
from faults.tables import Iceberg

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

ROOT: Final = Path(__file__).parents[2]
TARGETS: Final = ("sidecar", "consumer")
USER: Final = "10001:10001"
RECORDS: Final = 1000
BUILDING: Final = ("cc", "gcc", "make", "pip", "pip3", "javac", "git", "curl")
PATIENCE: Final = 180.0


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of an engine."""
    with engine(tmp_path_factory.mktemp("docker")) as client:
        yield client


@pytest.fixture(scope="module")
def images(docker: Any) -> dict[str, Any]:
    """Both images by the name of their target."""
    args = {"BASE": base(docker)}
    return {target: _built(docker, target, args) for target in TARGETS}


def _built(docker: Any, target: str, args: dict[str, str]) -> Any:
    where = {"path": str(ROOT), "dockerfile": "deploy/Dockerfile", "target": target}
    try:
        made, _ = docker.images.build(
            **where, buildargs=args, network_mode="host", rm=True, tag=f"trimtab-test-{target}"
        )
    except BuildError as error:
        said = "".join(line.get("stream", "") for line in error.build_log)
        pytest.fail(f"{error}\n{said[-3000:]}")
    return made


@contextmanager
def running(docker: Any, image: Any, words: list[str], **more: Any) -> Generator[Any]:
    """Run a container as a pod would, in the host's network; it is gone after the block."""
    made = docker.containers.run(
        image,
        words,
        detach=True,
        read_only=True,
        user=USER,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode="host",
        tmpfs={"/tmp": "exec,mode=1777"},  # noqa: S108 - an emptyDir lets libraries be loaded too
        **more,
    )
    try:
        yield made
    finally:
        made.remove(force=True)


def log(container: Any) -> str:
    return str(container.logs().decode())


def healthy(container: Any) -> bool:
    """Tell whether the image's own health check has passed."""
    container.reload()
    assert container.status == "running", log(container)
    return bool(container.attrs["State"]["Health"]["Status"] == "healthy")


def text_of(url: str) -> str:
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 - ours
            return str(answer.read().decode())
    except (URLError, OSError):
        return ""


def filled(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"x" * 100, key=str(number))
    assert producer.flush(30) == 0


def written(folder: Path, settings: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Write a settings file and return the volume that has it."""
    file = folder / "settings.yaml"
    file.write_text(yaml.safe_dump(settings))
    file.chmod(0o644)
    return {str(file): {"bind": "/etc/trimtab/settings.yaml", "mode": "ro"}}


def test_their_sizes(docker: Any, images: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """The sidecar has neither Spark nor Java, and adds a fraction of what the consumer adds."""
    whole = {"base": docker.images.get(base(docker)), **images}
    sizes = {f"{name}_mb": round(image.attrs["Size"] / 1e6) for name, image in whole.items()}
    with capsys.disabled():
        print(f"\nRESULT {json.dumps(sizes)}")  # noqa: T201 - what a reader looks for
    assert 2 * (sizes["sidecar_mb"] - sizes["base_mb"]) < sizes["consumer_mb"] - sizes["base_mb"]


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_left_of_the_build(docker: Any, images: dict[str, Any], target: str) -> None:
    """No compiler, no installer, no source, no root; Java only where Spark needs it."""
    look = "; ".join(f"command -v {name}" for name in (*BUILDING, "java"))
    ask = f"{look}; id -u; ls /src; python3 -m pip --version; exit 0"
    said = docker.containers.run(
        images[target], ["-c", ask], entrypoint="sh", network_mode="host", remove=True, stderr=True
    ).decode()
    found = [line for line in said.splitlines() if line.startswith("/") and ":" not in line]
    assert [Path(line).name for line in found] == (["java"] if target == "consumer" else [])
    assert "10001" in said.splitlines()
    assert "No module named pip" in said
    assert "/src" in said
    assert "No such file" in said


@pytest.mark.broker
def test_the_sidecar_runs(  # noqa: PLR0913 - fixtures
    docker: Any,
    images: dict[str, Any],
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    tmp_path: Path,
    *,
    eventually: Eventually,
) -> None:
    """Against a real broker it turns, is healthy by its own check, and ends with 0 when told to."""
    name, (port,) = topic(partitions=2), free_ports(1)
    filled(bootstrap, name)
    settings = {"bootstrap": bootstrap, "group": group, "topics": [name], "capacity": "1 MB/s"}
    volumes = written(tmp_path, {**settings, "interval": "1 s", "window": "4 s"})
    page = f"http://{HOST}:{port}"
    words = ["sidecar", "--config", "/etc/trimtab/settings.yaml", "--port", str(port)]
    environment = {"TRIMTAB_HEALTH": f"{page}/healthz"}
    with running(docker, images["sidecar"], words, volumes=volumes, environment=environment) as container:
        eventually(lambda: "last iteration" in text_of(f"{page}/healthz"), PATIENCE)
        eventually(lambda: "trimtab_write_speed" in text_of(f"{page}/metrics"), PATIENCE)
        eventually(lambda: healthy(container), PATIENCE)
        container.stop(timeout=30)
        assert container.wait()["StatusCode"] == 0, log(container)


@pytest.mark.broker
def test_the_consumer_writes(  # noqa: PLR0913 - fixtures
    docker: Any,
    images: dict[str, Any],
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    tmp_path: Path,
    *,
    eventually: Eventually,
) -> None:
    """Records of a real broker are in a table on a volume, once each; nothing is fetched for it."""
    name, (port,) = topic(partitions=2), free_ports(1)
    filled(bootstrap, name)
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(0o777)  # whoever the container's user is here
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
    volumes = written(tmp_path, settings) | {str(lake): {"bind": str(lake), "mode": "rw"}}
    words = ["ingest", "--config", "/etc/trimtab/settings.yaml", "--metrics-port", str(port)]
    environment = {"TRIMTAB_HEALTH": f"http://{HOST}:{port}/healthz"}
    with running(docker, images["consumer"], words, volumes=volumes, environment=environment) as container:
        eventually(lambda: healthy(container), PATIENCE)
        eventually(lambda: counted(lake, name) >= RECORDS, PATIENCE)
        container.stop(timeout=120)
        assert container.wait()["StatusCode"] == 0, log(container)
        assert "fetching" not in log(container)
    assert counted(lake, name) == RECORDS
    assert (lake / "catalog.db").stat().st_uid == 10001


def counted(lake: Path, topic: str) -> int:
    """Return the rows of the topic's table; 0 while there is none."""
    return Iceberg(lake).count(table(topic)) if (lake / "catalog.db").exists() else 0
