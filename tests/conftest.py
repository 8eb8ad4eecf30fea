"""Fixtures of all tests: one broker and one Spark session a run, unique names, polling.

The broker is TRIMTAB_TEST_BOOTSTRAP if set, else a container if a Docker engine is available, else
the embedded broker. Effort of hypothesis: HYPOTHESIS_PROFILE=quick (default), ci or night.
"""

import itertools
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import settings as hypothesis_settings

from support.file_scheduling import FileScheduling
from trimtab.cli.demo.jvm_class_archive import find_archive, jvm_options
from trimtab.testing import KafkaTopics, RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cluster.control_plane import ControlPlane
    from cluster.kubelet import Kubelet
    from cluster.workloads import Cluster
    from spark_cluster.standalone import StandaloneCluster
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

# A shell that runs the tests in its background lets them ignore Ctrl-C. Programs that a test starts would
# inherit it, and never end by the signal that the test sends.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Spark's JVMs, of tests and of the processes that they start, compile quickly: optimizing code that runs once
# takes nearly half of the processor time of the lake's tests. `make test` archives their classes, which
# halves their start. Nor does Spark generate classes for plans that run once: a quarter less on Delta.
# A JVM's own options come later, and win.
_NO_CODE_GENERATION = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{jvm_options(find_archive())} {_NO_CODE_GENERATION}")

_RUN = secrets.token_hex(3)
_NUMBERS = itertools.count(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    """Distribute files so that the run ends when a worker crashes; other distributions are xdist's own."""
    return FileScheduling(config, log) if config.option.dist == "loadfile" else None


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class TopicFactory(Protocol):
    def __call__(self, partitions: int = 4, **config: str) -> str: ...


@pytest.fixture(scope="session")
def bootstrap(kafka_broker: RunningBroker) -> str:
    """Address of the run's broker."""
    return kafka_broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(kafka_topics: KafkaTopics) -> KafkaTopics:
    """Create topics; underscores in keyword arguments stand for the dots in topic settings."""
    return kafka_topics


@pytest.fixture
def group(kafka_group: str) -> str:
    """Unique name of a consumer group."""
    return kafka_group


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """Poll a condition until it holds; the test fails after `timeout` seconds, on a busy machine later."""

    def wait(condition: Callable[[], object], timeout: float = 30.0) -> None:
        never, pause, deadline = Event(), 0.01, monotonic() + BUSY_MACHINE_FACTOR * timeout
        while not condition():
            if monotonic() > deadline:
                pytest.fail(f"not true within {BUSY_MACHINE_FACTOR * timeout} s: {condition}")
            # ever less often: most conditions ask a broker, which costs processor time
            never.wait(pause := min(1.2 * pause, 0.2))

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
    from trimtab.consumer_sdk.lake.options.settings import SessionConfig  # noqa: PLC0415 - pyspark is slow
    from trimtab.consumer_sdk.lake.session.spark_session import start_session  # noqa: PLC0415 - as above

    delta = resolve_requirements(SessionConfig(warehouse=str(warehouse), format="delta"))
    options = {
        **delta.settings,
        "spark.jars": ",".join(map(str, delta.fetch_jars())),
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
    }
    session = SessionConfig(warehouse=str(warehouse), spark=options)
    lake = IcebergLake(start_session(session), session.catalog_name, file_writer="spark", owns_session=True)
    yield lake
    lake.close()


@pytest.fixture(scope="session")
def delta(iceberg: "IcebergLake", warehouse: Path) -> "DeltaLake":
    """Delta tables in the same warehouse, in a second session of the same JVM."""
    from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake  # noqa: PLC0415 - pyspark is slow
    from trimtab.consumer_sdk.lake.formats.table_format import hadoop_path  # noqa: PLC0415 - as above

    session = iceberg.spark.newSession()
    session.conf.set("spark.sql.defaultCatalog", "spark_catalog")
    return DeltaLake(session, hadoop_path(str(warehouse)), file_writer="spark")


@pytest.fixture(scope="session")
def iceberg_arrow(iceberg: "IcebergLake") -> "IcebergLake":
    """The same tables; data files are written from Arrow."""
    return type(iceberg)(iceberg.spark, iceberg.catalog_name, file_writer="arrow")


@pytest.fixture(scope="session")
def delta_arrow(delta: "DeltaLake", warehouse: Path) -> "DeltaLake":
    """The same tables; data files are written from Arrow."""
    return type(delta)(delta.spark, f"file:{warehouse}", file_writer="arrow")


@pytest.fixture(scope="session")
def lake(iceberg: "IcebergLake") -> "IcebergLake":
    """The lake in the default format."""
    return iceberg


@pytest.fixture(scope="session")
def spark(iceberg: "IcebergLake") -> "SparkSession":
    return iceberg.spark


@pytest.fixture(scope="module")
def standalone(
    tmp_path_factory: pytest.TempPathFactory, eventually: Eventually
) -> "Iterator[StandaloneCluster]":
    """Spark's standalone master, without workers."""
    from spark_cluster.standalone import StandaloneCluster  # noqa: PLC0415 - pyspark is slow

    cluster = StandaloneCluster(tmp_path_factory.mktemp("spark"), eventually)
    yield cluster
    cluster.close()


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
