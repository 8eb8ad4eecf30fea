"""The identifier of a Kubernetes cluster."""

from pathlib import Path

import yaml

from cluster import keys
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind

ADDRESS = "https://10.96.0.1:443"


def read_cluster_id(folder: Path, authority: Path | None = None) -> str:
    """Return the identifier of a client's cluster, without a request."""
    cluster = {"server": ADDRESS}
    if authority is not None:
        cluster["certificate-authority"] = str(authority)
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(body))
    api = KubernetesApi(ScaleTargetRef(WorkloadKind.DEPLOYMENT, "lake", "default", file), 1.0)
    try:
        return api.cluster_id
    finally:
        api.close()


def test_clusters_with_one_address_have_different_ids(tmp_path: Path) -> None:
    """The CA certificate identifies a cluster; without one, its address does."""
    for name in ("blue", "green"):
        keys.signed(tmp_path, name, f"{name}-ca", "server")
    blue, green = (read_cluster_id(tmp_path, tmp_path / f"{name}-ca.crt") for name in ("blue", "green"))
    assert blue == read_cluster_id(tmp_path, tmp_path / "blue-ca.crt")
    assert len({blue, green, read_cluster_id(tmp_path)}) == 3
    assert read_cluster_id(tmp_path) == ADDRESS
