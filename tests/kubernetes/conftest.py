"""Fixtures of the tests on a Kubernetes control plane."""

from collections.abc import Iterator

import pytest

from cluster.control_plane import ControlPlane
from cluster.keda import Keda
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
