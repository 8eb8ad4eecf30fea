"""Checks of groups of any client: the broker's assignor (KIP-848), and who carries plans out. Pure."""

from collections.abc import Iterable
from typing import Final

from trimtab.sidecar.diagnostics.doctor.checks import Finding, FindingLevel, failed, passed
from trimtab.sidecar.measurement.observation import ObservedGroup
from trimtab.sidecar.pilot.membership import ASSIGNOR_NAME
from trimtab.sidecar.plan_carrier import CarrierStatus

ASSIGNOR_CHECK: Final = "assignor"
CARRIER_CHECK: Final = "plan carrier"


def check_assignor(group: ObservedGroup) -> Iterable[Finding]:
    """Check that the broker assigns by the plugin; nothing for a classic group."""
    if group.assignor == ASSIGNOR_NAME:
        yield passed(ASSIGNOR_CHECK, f"the broker assigns by {ASSIGNOR_NAME!r}, which carries out plans")
    elif group.assignor is not None:
        message = f"the broker assigns by {group.assignor!r}, which knows no plans"
        remedy = "install the broker plugin, first in group.consumer.assignors (docs/any-client.md)"
        yield Finding(ASSIGNOR_CHECK, FindingLevel.NOTE, message, remedy)


def check_plan_carrier(carrier: CarrierStatus) -> Finding:
    """Check that the group's members get what the plan gives them, as the active sidecar has recorded."""
    if carrier.is_steering:
        return passed(CARRIER_CHECK, carrier.text)
    return failed(CARRIER_CHECK, carrier.text, "docs/any-client.md tells how plans come to be carried out")
