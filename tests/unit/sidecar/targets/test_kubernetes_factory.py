"""What a sidecar does when it starts beside an API server that does not let it look."""

from contextlib import ExitStack
from typing import Any

import pytest
from ticking import Ticking

from trimtab.sidecar.errors import KubernetesRejectedError, KubernetesUnavailableError
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.kubernetes.api_client import ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.factory import connect_workload_target


class Refusing:
    """An API server that answers every look with an error."""

    def __init__(self, scale_target: ScaleTargetRef, error: Exception) -> None:
        self.scale_target = scale_target
        self.error = error

    def close(self) -> None:
        """Nothing is open."""

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
def test_what_may_be_mended_is_waited_for(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """A right that is missing, as a server that is away: said, and each turn asks again."""
    steering = start(error)
    assert str(error) in caplog.text
    with pytest.raises(type(error)):
        steering.target.list_replicas()


def test_a_workload_that_is_not_there_ends_the_start() -> None:
    """A wrong name is for a person to mend."""
    with pytest.raises(KubernetesRejectedError, match="is not in namespace"):
        start(KubernetesRejectedError("deployment lake is not in namespace default", 404))
