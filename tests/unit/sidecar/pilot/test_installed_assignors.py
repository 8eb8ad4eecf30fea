"""Under which names a broker has the plugin."""

import pytest

from trimtab.sidecar.pilot.installed_assignors import is_plugin


@pytest.mark.parametrize(
    ("assignor", "installed", "expected"),
    [
        ("trimtab", None, True),
        ("uniform", None, False),
        ("uniform", "io.trimtab.PlannedAssignor,uniform,range", False),
        ("uniform", "io.trimtab.PlannedAssignor, io.trimtab.PlannedUniformAssignor ,range", True),
        ("range", "io.trimtab.PlannedUniformAssignor,range", False),
        (None, "io.trimtab.PlannedUniformAssignor", False),
    ],
)
def test_only_its_own_names_are_the_plugin(
    assignor: str | None, installed: str | None, *, expected: bool
) -> None:
    """`uniform` is Kafka's own assignor unless the broker's settings name the plugin's class for it."""
    assert is_plugin(assignor, installed) == expected
