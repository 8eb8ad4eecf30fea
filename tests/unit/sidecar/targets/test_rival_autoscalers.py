"""What else scales the workload of a sidecar."""

from typing import Any

import pytest

from trimtab.sidecar.targets.kubernetes.rival_autoscalers import find_rival_autoscalers


def autoscaler(name: str, *, scaled_object: str = "", kind: str = "Deployment") -> dict[str, Any]:
    """Return a HorizontalPodAutoscaler of the workload `orders`, KEDA's for a ScaledObject."""
    owners = [{"kind": "ScaledObject", "name": scaled_object}] if scaled_object else []
    return {
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {"scaleTargetRef": {"kind": kind, "name": "orders"}},
    }


@pytest.mark.parametrize(
    ("autoscalers", "alone", "beside_keda"),
    [
        ([], (), ()),
        ([autoscaler("cpu")], ("HorizontalPodAutoscaler cpu",), ("HorizontalPodAutoscaler cpu",)),
        ([autoscaler("keda-hpa-a", scaled_object="a")], ("ScaledObject a",), ()),
        (
            [autoscaler("keda-hpa-b", scaled_object="b"), autoscaler("keda-hpa-a", scaled_object="a")],
            ("ScaledObject a", "ScaledObject b"),
            ("ScaledObject a", "ScaledObject b"),
        ),
        ([autoscaler("cpu", kind="StatefulSet")], (), ()),
    ],
)
def test_each_other_autoscaler_of_the_workload_is_a_rival(
    autoscalers: list[dict[str, Any]], alone: tuple[str, ...], beside_keda: tuple[str, ...]
) -> None:
    """KEDA's one autoscaler applies the sidecar's count with target keda, and is a rival without it."""
    assert find_rival_autoscalers(autoscalers, "deployment/orders", keda=False) == alone
    assert find_rival_autoscalers(autoscalers, "deployment/orders", keda=True) == beside_keda
