"""Finds what else scales a workload: two autoscalers would undo each other's counts. Pure.

1. Target `kubernetes`: each HorizontalPodAutoscaler on the workload is a rival, also KEDA's, which stands
   for a ScaledObject.
2. Target `keda`: KEDA's own HorizontalPodAutoscaler applies the count that the sidecar reports. Any other is
   a rival, and so are two ScaledObjects.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

SCALED_OBJECT: Final = "ScaledObject"
WORKLOAD_KINDS: Final[Mapping[str, str]] = {"Deployment": "deployment", "StatefulSet": "statefulset"}


def find_rival_autoscalers(
    autoscalers: Iterable[Mapping[str, Any]], workload: str, *, keda: bool
) -> tuple[str, ...]:
    """Return the rivals of the sidecar on `workload`, such as `deployment/orders`, each with its kind.

    `autoscalers` are the HorizontalPodAutoscalers of the namespace; `keda`: KEDA sets the sidecar's count.
    """
    rivals = [one for one in autoscalers if _format_target(one["spec"]["scaleTargetRef"]) == workload]
    scaled_objects = [name for one in rivals for name in _list_scaled_objects(one)]
    plain = [one["metadata"]["name"] for one in rivals if not _list_scaled_objects(one)]
    if keda and len(scaled_objects) == 1:
        scaled_objects = []
    return (
        *(f"HorizontalPodAutoscaler {name}" for name in sorted(plain)),
        *(f"{SCALED_OBJECT} {name}" for name in sorted(scaled_objects)),
    )


def describe_rivals(workload: str, rivals: Sequence[str]) -> str:
    """Return what scales a workload besides the sidecar, and what to do."""
    names = " and ".join(rivals)
    return (
        f"{names} scales {workload}, too, and would undo the sidecar's count: delete it, or let the sidecar "
        "only advise (target: none)"
    )


def _format_target(reference: Mapping[str, Any]) -> str:
    kind = str(reference.get("kind", ""))
    return f"{WORKLOAD_KINDS.get(kind, kind)}/{reference.get('name')}"


def _list_scaled_objects(autoscaler: Mapping[str, Any]) -> list[str]:
    owners = autoscaler["metadata"].get("ownerReferences") or ()
    return [str(owner["name"]) for owner in owners if owner.get("kind") == SCALED_OBJECT]
