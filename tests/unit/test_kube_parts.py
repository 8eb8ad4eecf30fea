"""What a sidecar does when it starts beside an API server that does not let it look."""

from contextlib import ExitStack
from typing import Any

import pytest
from ticking import Ticking

from trimtab.sidecar.errors import KubernetesAway, KubernetesRefuses
from trimtab.sidecar.settings.settings import load
from trimtab.sidecar.targets.kubernetes.api_client import Place
from trimtab.sidecar.targets.kubernetes.factory import connected


class Refusing:
    """An API server that answers every look with an error."""

    def __init__(self, place: Place, error: Exception) -> None:
        self.place = place
        self.error = error

    def close(self) -> None:
        """Nothing is open."""

    def look(self) -> None:
        raise self.error


def start(error: Exception) -> Any:
    given = {"bootstrap": "b:1", "group": "g", "capacity": 1, "target": "kubernetes"}
    settings = load(None, {**given, "workload": "deployment/lake", "elect": False})

    def opened(place: Place, _: float) -> Any:
        return Refusing(place, error)

    with ExitStack() as stack:
        return connected(settings, Ticking(), stack, opened)


@pytest.mark.parametrize(
    "error",
    [
        KubernetesRefuses("not allowed to list pods", 403),
        KubernetesRefuses("not allowed to get deployments", 401),
        KubernetesAway("no answer"),
    ],
)
def test_what_may_be_mended_is_waited_for(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A right that is missing, as a server that is away: said, and each turn asks again."""
    steering = start(error)
    assert str(error) in caplog.text
    with pytest.raises(type(error)):
        steering.target.replicas()


def test_a_workload_that_is_not_there_ends_the_start() -> None:
    """A wrong name is for a person to mend."""
    with pytest.raises(KubernetesRefuses, match="is not in namespace"):
        start(KubernetesRefuses("deployment lake is not in namespace default", 404))
