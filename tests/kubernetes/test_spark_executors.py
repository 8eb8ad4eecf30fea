"""The overlay `spark-executors` on a real API server: Spark's driver creates pods that write data files.

The test's kubelet runs the pods' command as a process, so the executors are real; images are not run.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Producer
from kubernetes import client

from cluster.control_plane import ControlPlane
from cluster.manifests import DEPLOY, Object, named, overlay
from cluster.manifests import settings as settings_of
from cluster.workloads import Cluster
from faults.tables import Iceberg

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]

FOLDER: Final = DEPLOY / "kustomize" / "overlays" / "spark-executors"
NAMESPACE: Final = "executors"
ACCOUNT: Final = "trimtab-consumer"
DRIVER: Final = "trimtab-consumer-0"
EXECUTORS: Final = "spark-role=executor"
RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
ELSEWHERE: Final = {"lake.storage", "lake.catalog.type", "lake.catalog.uri", "trimtab.capacity"}
"""Settings of the overlay that need a storage, or a sidecar."""


@pytest.fixture(scope="module")
def rendered() -> dict[tuple[str, str], Object]:
    return named(overlay("spark-executors"))


@pytest.fixture(scope="module")
def token_file(
    cluster: Cluster, rendered: dict[tuple[str, str], Object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Token of the overlay's account with the overlay's role, in a namespace of restricted pods."""
    cluster.core.create_namespace({"metadata": {"name": NAMESPACE, "labels": RESTRICTED}})
    cluster.core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": ACCOUNT}})
    for kind, create in (
        ("Role", cluster.rbac.create_namespaced_role),
        ("RoleBinding", cluster.rbac.create_namespaced_role_binding),
    ):
        body = rendered[kind, ACCOUNT]
        body["metadata"].pop("namespace")
        for subject in body.get("subjects", ()):
            subject["namespace"] = NAMESPACE
        create(NAMESPACE, body)
    made = cluster.core.create_namespaced_service_account_token(ACCOUNT, NAMESPACE, {"spec": {}})
    file = tmp_path_factory.mktemp("account") / "token"
    file.write_text(str(made.status.token))
    yield file
    cluster.core.delete_namespace(NAMESPACE)


def test_the_account_may_handle_pods_of_its_namespace_alone(
    plane: ControlPlane, token_file: Path, rendered: dict[tuple[str, str], Object], tmp_path: Path
) -> None:
    """The API server allows the role's verbs, and denies all else that Spark could ask for."""
    config = tmp_path / "kubeconfig"
    config.write_text(plane.config_for(token_file.read_text()))
    account = Cluster(config)
    reviews = client.AuthorizationV1Api(account.client)

    def may(verb: str, resource: str, namespace: str = NAMESPACE) -> bool:
        attributes = {"verb": verb, "resource": resource, "namespace": namespace}
        body = {"spec": {"resourceAttributes": attributes}}
        return bool(reviews.create_self_subject_access_review(body).status.allowed)

    (rule,) = rendered["Role", ACCOUNT]["rules"]
    others = ("secrets", "configmaps", "services", "persistentvolumeclaims")
    assert all(may(verb, "pods") for verb in rule["verbs"])
    assert not any(may(verb, resource) for verb in rule["verbs"] for resource in others)
    assert not may("patch", "pods")
    assert not may("create", "pods", "default")
    account.close()


@pytest.fixture
def driver(cluster: Cluster, rendered: dict[tuple[str, str], Object]) -> Any:
    """The consumer's pod; its process is the test's."""
    spec = rendered["Deployment", ACCOUNT]["spec"]["template"]["spec"]
    kept = {name: spec[name] for name in ("securityContext", "serviceAccountName")}
    (container,) = spec["containers"]
    body = {name: container[name] for name in ("name", "image", "securityContext")}
    pod = {"metadata": {"name": DRIVER}, "spec": {**kept, "containers": [body]}}
    return cluster.core.create_namespaced_pod(NAMESPACE, pod)


def ingest_settings(
    plane: ControlPlane, token_file: Path, folder: Path, objects: list[Object], **more: Any
) -> dict[str, Any]:
    """Return the overlay's settings, with this machine's addresses and folders."""
    settings = {n: v for n, v in settings_of(objects, "consumer").items() if n not in ELSEWHERE}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        **settings,
        "lake.warehouse": str(folder / "lake"),
        "lake.tables": {more["topics"][0]: "shop.orders"},
        "batch.max.age": "1 s",
        "spark.master": f"k8s://{plane.server}",
        "spark.kubernetes.authenticate.caCertFile": str(plane.certificate),
        "spark.kubernetes.authenticate.oauthTokenFile": str(token_file),
        "spark.kubernetes.executor.podTemplateFile": str(FOLDER / "executor.yaml"),
        "spark.driver.port": 0,
        "spark.blockManager.port": 0,
        "spark.executorEnv.PATH": path,
        # Debian's etcd has no progress requests, without which the API server refuses Spark's watch: it polls
        "spark.kubernetes.executor.apiPollingInterval": "1s",
        "spark.kubernetes.executor.missingPodDetectDelta": "2s",
        "spark.log.level": "WARN",
        **more,
    }


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, f"value {number}".encode())
    producer.flush(30)


def test_executors_are_pods_that_write_the_files(  # noqa: PLR0913, PLR0917 - fixtures
    plane: ControlPlane,
    cluster: Cluster,
    token_file: Path,
    driver: Any,
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """With the role alone; image and owner are right, a deleted one is replaced, all end in order."""

    def executors() -> list[Any]:
        pods = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=EXECUTORS).items
        return [pod for pod in pods if pod.metadata.deletion_timestamp is None]

    name, log, table = topic(partitions=2), tmp_path / "log", Iceberg(tmp_path / "lake")
    more = {"bootstrap.servers": bootstrap, "group.id": group, "topics": [name]}
    settings = ingest_settings(plane, token_file, tmp_path, overlay("spark-executors"), **more)
    (tmp_path / "ingest.yaml").write_text(yaml.safe_dump(settings))
    environment = {"POD_NAME": DRIVER, "POD_NAMESPACE": NAMESPACE, "POD_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "trimtab.cli", "ingest", "--config", str(tmp_path / "ingest.yaml")]
    produce(bootstrap, name, 100)
    with (
        log.open("wb") as sink,
        subprocess.Popen(command, stdout=sink, stderr=sink, env={**os.environ, **environment}) as process,
    ):
        try:
            eventually(lambda: table.count("orders") == 100, 60)
            (first,) = executors()
            (container,) = first.spec.containers
            assert container.image == settings["spark.kubernetes.container.image"]
            assert [owner.uid for owner in first.metadata.owner_references] == [driver.metadata.uid]
            assert first.spec.service_account_name == ACCOUNT
            cluster.core.delete_namespaced_pod(first.metadata.name, NAMESPACE)
            produce(bootstrap, name, 50)
            eventually(lambda: table.count("orders") == 150, 90)
            assert first.metadata.name not in {pod.metadata.name for pod in executors()}
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0, log.read_text()
    eventually(lambda: not executors(), 60)
    assert "orbidden" not in log.read_text()
