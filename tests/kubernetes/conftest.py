"""Fixtures of the tests on a Kubernetes control plane."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from cluster.control_plane import ControlPlane
from cluster.definitions import define
from cluster.keda import Keda
from cluster.scaler_resources import DEFINITION, PARTITIONS, ManyGroupsSidecar, ScalerResourceClient
from cluster.workloads import Cluster


@pytest.fixture(scope="session")
def keda(plane: ControlPlane, cluster: Cluster) -> Iterator[Keda]:
    """KEDA, from the first test that needs it on: a control plane takes one."""
    made = Keda(plane, cluster)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def scalers(cluster: Cluster) -> Iterator[ScalerResourceClient]:
    """The resources of a namespace; those of the test are deleted after it."""
    define(cluster, [DEFINITION])
    made = ScalerResourceClient(cluster)
    yield made
    made.delete_all()


@pytest.fixture
def resource_kubeconfig(cluster: Cluster, plane: ControlPlane, tmp_path: Path) -> Path:
    """Access with the rights of the overlay's role only."""
    rules = yaml.safe_load(DEFINITION.with_name("role.yaml").read_text())["rules"]
    file = tmp_path / "kubeconfig"
    file.write_text(plane.config_for(cluster.account(f"sidecar-of-{tmp_path.name.replace('_', '-')}", rules)))
    return file


@pytest.fixture
def sidecar(
    bootstrap: str, group: str, topic: Callable[..., str], resource_kubeconfig: Path
) -> ManyGroupsSidecar:
    """A sidecar whose groups are resources."""
    made = topic(partitions=PARTITIONS)
    return ManyGroupsSidecar(bootstrap, group, made, resource_kubeconfig, custom_resources=True)
