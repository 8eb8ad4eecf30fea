"""Check of the broker's assignor, for groups of the new protocol (KIP-848). Pure."""

from collections.abc import Iterable
from typing import Final

from trimtab.sidecar.diagnostics.doctor.checks import Finding, FindingLevel, passed
from trimtab.sidecar.measurement.observation import ObservedGroup
from trimtab.sidecar.pilot.membership import ASSIGNOR_NAME

ASSIGNOR_CHECK: Final = "assignor"


def check_assignor(group: ObservedGroup) -> Iterable[Finding]:
    """Check that the broker assigns by the plugin; nothing for a classic group."""
    if group.assignor == ASSIGNOR_NAME:
        yield passed(ASSIGNOR_CHECK, f"the broker assigns by {ASSIGNOR_NAME!r}, which carries out plans")
    elif group.assignor is not None:
        message = f"the broker assigns by {group.assignor!r}, which knows no plans"
        remedy = "install the broker plugin, first in group.consumer.assignors (docs/any-client.md)"
        yield Finding(ASSIGNOR_CHECK, FindingLevel.NOTE, message, remedy)
