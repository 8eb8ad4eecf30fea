"""Which verdicts become Events on the workload."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trimtab.sidecar.decision.decision import Action, Numbers, Verdict
from trimtab.sidecar.errors import KubernetesRefuses
from trimtab.sidecar.reporting.iteration_report import NOT_DONE, Report
from trimtab.sidecar.targets.kubernetes.api_client import KubeApi
from trimtab.sidecar.targets.kubernetes.scaling_events import Events


@dataclass
class Told:
    """An API that takes note."""

    events: list[tuple[str, str, bool]] = field(default_factory=list)
    refuses: bool = False

    def look(self) -> Any:
        return SimpleNamespace(workload=SimpleNamespace(uid="u"))

    def tell(self, uid: str, reason: str, message: str, at: str, *, wrong: bool) -> None:
        assert (uid, at) == ("u", "2023-11-14T22:13:20Z")
        if self.refuses:
            raise KubernetesRefuses("not allowed to create events")
        self.events.append((reason, message, wrong))


def turn(events: Events, action: Action, *reasons: str) -> None:
    verdict = Verdict(action, reasons, Numbers())
    events(Report(1.7e9, verdict, {}, 1, reachable=True, decided_in=0.0, turned_in=0.0))


def test_scalings_are_told() -> None:
    """A scaling is an event with its reasons; a turn that holds is none."""
    api = Told()
    events = Events(cast("KubeApi", api))
    turn(events, Action.HOLD, "2 is right")
    turn(events, Action.START, "1 -> 2", "started a")
    assert api.events == [("ScaledOut", "1 -> 2; started a", False)]


def test_a_failure_is_told_once() -> None:
    """What cannot be done is a warning, once while it fails for the same reason."""
    api = Told()
    events = Events(cast("KubeApi", api))
    for needed in ("needed 1 B/s", "needed 2 B/s"):
        turn(events, Action.START, needed, f"{NOT_DONE}no right")
    turn(events, Action.START, "needed 3 B/s", f"{NOT_DONE}no answer")
    turn(events, Action.START, "needed 3 B/s")
    assert [wrong for _, _, wrong in api.events] == [True, True, False]


def test_who_may_not_tell_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """An event that is refused is logged."""
    events = Events(cast("KubeApi", Told(refuses=True)))
    turn(events, Action.STOP, "nothing is left")
    assert "not allowed to create events" in caplog.text
