"""What the doctor says of the broker's assignor."""

import pytest

from trimtab.sidecar.diagnostics.doctor.assignor_checks import check_assignor
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.measurement.observation import GroupState, ObservedGroup


@pytest.mark.parametrize(
    ("assignor", "levels"), [(None, []), ("trimtab", [FindingLevel.OK]), ("uniform", [FindingLevel.NOTE])]
)
def test_only_the_plugin_carries_out_plans(assignor: str | None, levels: list[FindingLevel]) -> None:
    """A classic group has no assignor in the broker, and nothing is said of it."""
    findings = list(check_assignor(ObservedGroup(GroupState.STABLE, assignor=assignor)))
    assert [f.level for f in findings] == levels
    assert all("install the broker plugin" in (f.remedy or "") for f in findings if assignor == "uniform")
