"""What the doctor says of the broker's assignor."""

import pytest

from trimtab.sidecar.diagnostics.doctor.assignor_checks import check_assignor
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.model.observation import GroupState, ObservedGroup


@pytest.mark.parametrize(
    ("assignor", "levels"), [(None, []), ("trimtab", [FindingLevel.OK]), ("uniform", [FindingLevel.NOTE])]
)
def test_only_the_plugin_carries_out_plans(assignor: str | None, levels: list[FindingLevel]) -> None:
    """A classic group has no assignor in the broker, and nothing is said of it."""
    findings = list(check_assignor(ObservedGroup(GroupState.STABLE, assignor=assignor), None))
    assert [f.level for f in findings] == levels
    assert all("install the broker plugin" in (f.remedy or "") for f in findings if assignor == "uniform")


@pytest.mark.parametrize(
    ("installed", "remedy"),
    [
        ("uniform,range", "install the broker plugin"),
        ("uniform,io.trimtab.PlannedAssignor", "name it first"),
        ("io.trimtab.PlannedAssignor,uniform", "remove group.remote.assignor from the consumers"),
        ("io.trimtab.PlannedAssignor, io.trimtab.PlannedUniformAssignor", ""),
    ],
)
def test_an_installed_plugin_is_not_to_be_installed(installed: str, remedy: str) -> None:
    """The remedy is what is left to do; under the name uniform the plugin carries out plans, too."""
    group = ObservedGroup(GroupState.STABLE, assignor="uniform")
    (finding,) = check_assignor(group, installed)
    assert remedy in finding.remedy
    assert (finding.level is FindingLevel.OK) == (not remedy)
