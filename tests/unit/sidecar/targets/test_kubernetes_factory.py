"""Start of a sidecar beside an API server that answers with errors."""

from contextlib import ExitStack
from typing import Any

import pytest

from support.ticking import Ticking
from trimtab.sidecar.errors import KubernetesRejectedError, KubernetesUnavailableError
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.kubernetes.api_client import ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.factory import connect_workload_target


class Refusing:
    """An API server that answers every call with an error."""

    def __init__(self, scale_target: ScaleTargetRef, error: Exception) -> None:
        self.scale_target = scale_target
        self.error = error

    def close(self) -> None:
        """Close nothing."""

    def fetch_snapshot(self) -> None:
        raise self.error


def start(error: Exception) -> Any:
    given = {"bootstrap": "b:1", "group": "g", "capacity": 1, "target": "kubernetes"}
    settings = load_settings(None, {**given, "workload": "deployment/lake", "leader-election": False})

    def opened(place: ScaleTargetRef, _: float) -> Any:
        return Refusing(place, error)

    with ExitStack() as stack:
        return connect_workload_target(settings, Ticking(), stack, opened)


@pytest.mark.parametrize(
    "error",
    [
        KubernetesRejectedError("not allowed to list pods", 403),
        KubernetesRejectedError("not allowed to get deployments", 401),
        KubernetesUnavailableError("no answer"),
    ],
)
def test_a_transient_error_does_not_end_the_start(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """A missing right or an unavailable server is logged, and each iteration retries."""
    steering = start(error)
    assert str(error) in caplog.text
    with pytest.raises(type(error)):
        steering.target.list_replicas()


def test_a_missing_workload_ends_the_start() -> None:
    """A wrong name needs a person."""
    with pytest.raises(KubernetesRejectedError, match="is not in namespace"):
        start(KubernetesRejectedError("deployment lake is not in namespace default", 404))
