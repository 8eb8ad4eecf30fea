"""Pods as the API server describes them."""

from typing import Any

import pytest

from trimtab.sidecar.targets.kubernetes.workload import parse_pods

METADATA = {
    "name": "orders-a",
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "ownerReferences": [{"controller": True, "uid": "u"}],
}


@pytest.mark.parametrize(
    ("spec", "status", "address"),
    [
        ({}, {"podIP": "10.0.0.1"}, "10.0.0.1"),
        ({}, {}, ""),  # not scheduled yet
        ({"hostNetwork": True}, {"podIP": "10.0.0.1"}, ""),
    ],
)
def test_a_pod_is_known_by_an_address_of_its_own(
    spec: dict[str, Any], status: dict[str, Any], address: str
) -> None:
    """The address of a node is that of all its pods on the host network."""
    (pod,) = parse_pods([{"metadata": METADATA, "spec": spec, "status": status}], ["u"])
    assert pod.address == address
