"""`trimtab init` finds the workload of a group's members on a real API server."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from cluster.control_plane import ControlPlane
from cluster.workloads import Cluster
from trimtab.cli.init.workload_search import find_workload
from trimtab.sidecar.measurement.observation import ObservedMember

pytestmark = pytest.mark.kubernetes


@pytest.mark.parametrize("kind", ["deployment", "statefulset"])
@pytest.mark.usefixtures("kubelet")
def test_the_workload_of_the_members_is_found(
    kind: str, plane: ControlPlane, cluster: Cluster, eventually: Callable[..., None]
) -> None:
    """By the pods' names, which members have as client ids, or else by the pods' addresses."""
    name = f"init-{uuid4().hex[:8]}"
    cluster.make(kind, name, 2, {"command": ["sleep", "600"]})
    try:
        eventually(lambda: len(cluster.pods(name)) == 2)
        members = [ObservedMember(str(at), pod) for at, pod in enumerate(cluster.pods(name))]
        found, why_not = find_workload(members, None, plane.kubeconfig)
        assert found is not None, why_not
        assert (found.kind, found.name, found.replicas, found.scaled_object) == (kind, name, 2, None)
        strangers = [ObservedMember("1", "somebody", host="192.0.2.7")]
        missing, why_not = find_workload(strangers, None, plane.kubeconfig)
        assert missing is None
        assert "no pod of namespace" in why_not
    finally:
        cluster.delete(kind, name)
