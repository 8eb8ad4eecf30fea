"""Check of groups of any client: the broker's assignor (KIP-848). Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from trimtab.sidecar.diagnostics.doctor.checks import Finding, FindingLevel, passed
from trimtab.sidecar.model.observation import ObservedGroup
from trimtab.sidecar.pilot.installed_assignors import (
    ASSIGNORS_CONFIG,
    PLUGIN_CLASS,
    UNIFORM_PLUGIN_CLASS,
    is_plugin,
    list_assignors,
)

ASSIGNOR_CHECK: Final = "assignor"


def check_assignor(group: ObservedGroup, installed: str | None) -> Iterable[Finding]:
    """Check that the broker assigns by the plugin; nothing for a classic group.

    `installed` is the broker's group.consumer.assignors, None if it is not readable.
    """
    name = group.assignor
    if name is None:
        return
    if is_plugin(name, installed):
        yield passed(ASSIGNOR_CHECK, f"the broker assigns by {name!r}, which carries out plans")
        return
    message = f"the broker assigns by {name!r}, which knows no plans"
    yield Finding(
        ASSIGNOR_CHECK,
        FindingLevel.NOTE,
        message,
        f"{_find_remedy(list_assignors(installed))} (docs/any-client.md)",
    )


def _find_remedy(classes: Sequence[str]) -> str:
    if PLUGIN_CLASS not in classes:
        return f"install the broker plugin, first in {ASSIGNORS_CONFIG}"
    if classes[0] != PLUGIN_CLASS:
        return f"the plugin is installed: name it first in {ASSIGNORS_CONFIG}, or set protocol: consumer"
    return (
        "the plugin is installed: remove group.remote.assignor from the consumers, or, where their client "
        f"always names one, add {UNIFORM_PLUGIN_CLASS} to {ASSIGNORS_CONFIG} in place of uniform"
    )
