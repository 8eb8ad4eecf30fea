"""What the doctor tells of the Kubernetes object that names a group."""

from typing import Any

import pytest

from trimtab.sidecar.custom_resource.scaler_resource import ScalerResource
from trimtab.sidecar.diagnostics.doctor.resource_checks import check_resource


def resource(status: Any, kind: str = "ConsumerGroupScaler") -> ScalerResource:
    spec = {"group": "lake"}
    return ScalerResource("shop", "orders", "u", 3, "2026-11-25T00:00:00Z", spec, status, kind)


def status(ready: str, observed: int = 3) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": f"Is{ready}", "message": "as it is"}
    return {"observedGeneration": observed, "conditions": [condition]}


@pytest.mark.parametrize(
    ("told", "levels"),
    [
        (status("True"), ["ok"]),
        (status("False"), ["failed"]),
        (status("Unknown"), ["note"]),
        (status("True", observed=2), ["note", "ok"]),
        ({"observedGeneration": 3}, ["failed"]),  # without conditions
        ({}, ["failed"]),
    ],
)
def test_conditions_are_findings(told: dict[str, Any], levels: list[str]) -> None:
    """What a condition says is the message; a status of an earlier generation is a note."""
    findings = list(check_resource(resource(told)))
    assert [one.level.value for one in findings] == levels
    assert all(one.remedy for one in findings if one.level.value == "failed")


def test_a_workload_has_no_status() -> None:
    """Its annotations are what names the group."""
    (one,) = check_resource(resource({}, "Deployment"))
    assert (one.check, one.message) == ("Deployment shop/orders", "its annotations name group lake")
