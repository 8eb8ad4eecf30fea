"""Fixtures of all tests: one broker and one Spark session a run, unique names, polling.

The broker is TRIMTAB_TEST_BOOTSTRAP if set, else a container if a Docker engine is available, else
the embedded broker. Effort of hypothesis: HYPOTHESIS_PROFILE=quick (default), ci or night.
"""

import itertools
import os
import secrets
import socket
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import settings as hypothesis_settings

from trimtab.cli.broker import broker_config
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.demo.jvm_class_archive import find_archive, jvm_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cluster.control_plane import ControlPlane
    from cluster.kubelet import Kubelet
    from cluster.workloads import Cluster
    from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
    from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
    from trimtab.sidecar.targets.kubernetes.kubernetes_target import KubernetesTarget

# without a deadline: a busy machine is no failure
hypothesis_settings.register_profile("quick", max_examples=50, deadline=None)
hypothesis_settings.register_profile("ci", max_examples=500, deadline=None, derandomize=True)
hypothesis_settings.register_profile("night", max_examples=20_000, deadline=None, print_blob=True)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

BUSY_MACHINE_FACTOR = 3  # a test that passes is not slower for it

# A process that has used gRPC, as a test of KEDA's interface does, may crash in gRPC's fork handlers when it
# starts another one, such as Spark's JVM.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Spark's JVMs, of tests and of the processes that they start, compile quickly: optimizing code that runs once
# takes nearly half of the processor time of the lake's tests. `make test` archives their classes, which
# halves their start. A JVM's own options come later, and win.
os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options(find_archive()))

_RUN = secrets.token_hex(3)
_NUMBERS = itertools.count(1)


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class TopicFactory(Protocol):
    def __call__(self, partitions: int = 4, **config: str) -> str: ...


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Address of the run's broker."""
    address = os.environ.get("TRIMTAB_TEST_BOOTSTRAP")
    if address:
        yield address
    else:
        with ExitStack() as stack:
            yield _own_broker(stack)


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(admin: AdminClient, request: pytest.FixtureRequest) -> TopicFactory:
    """Create topics; underscores in keyword arguments stand for the dots in topic settings."""

    def make(partitions: int = 4, **config: str) -> str:
        name = f"{_fresh(request)}-topic"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        for created in admin.create_topics([new]).values():
            created.result(30)
        return name

    return make


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """Unique name of a consumer group."""
    return f"{_fresh(request)}-group"


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """Poll a condition until it holds; the test fails after `timeout` seconds, on a busy machine later."""

    def wait(condition: Callable[[], object], timeout: float = 30.0) -> None:
        pause, deadline = Event(), monotonic() + BUSY_MACHINE_FACTOR * timeout
        while not condition():
            if monotonic() > deadline:
                pytest.fail(f"not true within {BUSY_MACHINE_FACTOR * timeout} s: {condition}")
            pause.wait(0.02)

    return wait


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the run's lake."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def iceberg(warehouse: Path) -> "Iterator[IcebergLake]":
    """The run's only Spark session, with the embedded catalog; `delta` shares its JVM."""
    from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake  # noqa: PLC0415 - as above
    from trimtab.consumer_sdk.lake.formats.table_format import resolve_requirements  # noqa: PLC0415 - as above
    from trimtab.consumer_sdk.lake.settings import SessionConfig  # noqa: PLC0415 - pyspark is slow
    from trimtab.consumer_sdk.lake.spark.session import start_session  # noqa: PLC0415 - as above

    delta = resolve_requirements(SessionConfig(warehouse=str(warehouse), format="delta"))
    options = {
        **delta.settings,
        "spark.jars": ",".join(map(str, delta.fetch_jars())),
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
    }
    session = SessionConfig(warehouse=str(warehouse), spark=options)
    lake = IcebergLake(start_session(session), session.catalog_name, owns_session=True)
    yield lake
    lake.close()


@pytest.fixture(scope="session")
def delta(iceberg: "IcebergLake", warehouse: Path) -> "DeltaLake":
    """Delta tables in the same warehouse, in a second session of the same JVM."""
    from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake  # noqa: PLC0415 - pyspark is slow
    from trimtab.consumer_sdk.lake.formats.table_format import hadoop_path  # noqa: PLC0415 - as above

    session = iceberg.spark.newSession()
    session.conf.set("spark.sql.defaultCatalog", "spark_catalog")
    return DeltaLake(session, hadoop_path(str(warehouse)))


@pytest.fixture(scope="session")
def iceberg_arrow(iceberg: "IcebergLake") -> "IcebergLake":
    """The same tables; data files are written from Arrow."""
    return type(iceberg)(iceberg.spark, iceberg.catalog_name, arrow=True)


@pytest.fixture(scope="session")
def delta_arrow(delta: "DeltaLake", warehouse: Path) -> "DeltaLake":
    """The same tables; data files are written from Arrow."""
    return type(delta)(delta.spark, f"file:{warehouse}", arrow=True)


@pytest.fixture(scope="session")
def lake(iceberg: "IcebergLake") -> "IcebergLake":
    """The lake in the default format."""
    return iceberg


@pytest.fixture(scope="session")
def spark(iceberg: "IcebergLake") -> "SparkSession":
    return iceberg.spark


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ControlPlane]":
    """The run's Kubernetes control plane."""
    from cluster.control_plane import ControlPlane  # noqa: PLC0415 - few runs need it

    control_plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    try:
        control_plane.start()
        yield control_plane
    finally:
        control_plane.stop()


@pytest.fixture(scope="session")
def kubelet(plane: "ControlPlane") -> "Iterator[Kubelet]":
    """Runs the pods of the control plane as processes."""
    from cluster.kubelet import Kubelet  # noqa: PLC0415 - few runs need it

    kubelet = Kubelet(plane.kubeconfig, plane.folder / "pods")
    kubelet.start()
    yield kubelet
    kubelet.stop()


@pytest.fixture(scope="session")
def cluster(plane: "ControlPlane", kubelet: "Kubelet") -> "Iterator[Cluster]":
    """Administrator's client of the control plane; its pods run."""
    from cluster.workloads import Cluster  # noqa: PLC0415 - few runs need it

    del kubelet
    cluster = Cluster(plane.kubeconfig)
    yield cluster
    cluster.close()


@pytest.fixture
def workload(cluster: "Cluster") -> Iterator[Callable[..., str]]:
    """Create workloads of a kind, "deployment" or "statefulset", and delete them after the test."""
    created: list[tuple[str, str]] = []

    def make(kind: str, replicas: int = 0, **container: Any) -> str:
        name = f"{kind[:3]}-{_RUN}-{next(_NUMBERS)}"
        created.append((kind, name))
        cluster.make(kind, name, replicas, container)
        return name

    yield make
    for kind, name in created:
        cluster.delete(kind, name)


@pytest.fixture
def steered(
    plane: "ControlPlane", workload: Callable[..., str]
) -> "Iterator[Callable[..., KubernetesTarget]]":
    """Open replica targets: for a new workload with `replicas` replicas, or for `name`."""
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - few runs need it
    from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ScaleTargetRef  # noqa: PLC0415 - as above
    from trimtab.sidecar.targets.kubernetes.kubernetes_target import KubernetesTarget  # noqa: PLC0415 - as above
    from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind  # noqa: PLC0415 - as above

    opened: list[KubernetesApi] = []

    def open_one(
        kind: str, replicas: int = 0, *, name: str = "", api: type[KubernetesApi] = KubernetesApi, **more: Any
    ) -> KubernetesTarget:
        config = more.pop("kubeconfig", plane.kubeconfig)
        place = ScaleTargetRef(WorkloadKind(kind), name or workload(kind, replicas), "default", config)
        opened.append(api(place, 5.0))
        return KubernetesTarget(opened[-1], SystemClock(), **more)

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def namespace() -> str:
    """Unique namespace of tables."""
    return f"ns{next(_NUMBERS)}"


def _fresh(request: pytest.FixtureRequest) -> str:
    test = "".join(c if c.isalnum() else "-" for c in request.node.name)[:60]
    return f"{test}-{_RUN}-{next(_NUMBERS)}"


def _own_broker(stack: ExitStack) -> str:
    if _docker_answers():
        try:
            return stack.enter_context(_container())
        except Exception as error:  # noqa: BLE001 - an engine may run without access to images
            sys.stderr.write(f"no Kafka container ({error}): using the embedded broker\n")
    return stack.enter_context(EmbeddedBroker()).bootstrap


def _docker_answers() -> bool:
    import docker  # noqa: PLC0415 - needed only without TRIMTAB_TEST_BOOTSTRAP

    try:
        client = docker.from_env()
    except docker.errors.DockerException:
        return False
    try:
        return bool(client.ping())
    except Exception:  # noqa: BLE001 - any failure means that no engine is usable
        return False
    finally:
        client.close()


@contextmanager
def _container() -> Generator[str, None, None]:
    """Run Kafka's image with the embedded broker's settings; host and container use the same port."""
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only with Docker

    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    container = DockerContainer(f"apache/kafka:{broker_config.KAFKA_VERSION}").with_bind_ports(port, port)
    address = f"{container.get_docker_client().host()}:{port}"
    settings = {
        **broker_config.DEFAULT_PROPERTIES,
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:19093",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:19093",
    }
    for name, value in settings.items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    with container:
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=60)
        yield address
