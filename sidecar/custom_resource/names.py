"""Names of the custom resource, and which settings are fields of its spec.

Settings are written `scale-up-policies` in files and `scaleUpPolicies` in the resource, as Kubernetes
writes fields.
"""

import re
from typing import Any, Final

from trimtab.common.settings.settings_model import SettingsModel, list_settings
from trimtab.sidecar.settings.group_list import PROCESS_SETTINGS
from trimtab.sidecar.settings.options import SidecarOptions

API_GROUP: Final = "trimtab.io"
API_VERSION: Final = "v1alpha1"
KIND: Final = "ConsumerGroupScaler"
PLURAL: Final = "consumergroupscalers"
DEFINITION_NAME: Final = f"{PLURAL}.{API_GROUP}"

# Settings that a resource must not have: its author may write resources of one namespace, and would
# otherwise scale workloads of another one, or run commands and read files in the sidecar's pod.
NOT_IN_RESOURCES: Final = PROCESS_SETTINGS | {
    *("namespace", "leader-election", "state-dir"),
    *("worker-config", "worker-command", "worker-stop-timeout"),
}
RESOURCE_TARGETS: Final = ("none", "kubernetes", "keda")  # local processes belong to a settings file

RESOURCE_SETTINGS: Final = tuple(
    one for one in list_settings(SidecarOptions) if one.name not in NOT_IN_RESOURCES
)


def to_field_name(setting_name: str) -> str:
    """Return "scaleUpPolicies" of "scale-up-policies"."""
    return re.sub(r"-(\w)", lambda match: match[1].upper(), setting_name)


def to_setting_name(field_name: str) -> str:
    """Return "scale-up-policies" of "scaleUpPolicies"."""
    return re.sub(r"[A-Z]", lambda match: f"-{match[0].lower()}", field_name)


def to_setting_values(value: Any) -> Any:
    """Return a spec with the names of settings in place of its fields', also inside of values."""
    if isinstance(value, dict):
        return {to_setting_name(name): to_setting_values(inner) for name, inner in value.items()}
    return [to_setting_values(inner) for inner in value] if isinstance(value, list) else value


def list_field_names(model: type[SettingsModel]) -> dict[str, Any]:
    """Return the annotations of a model's settings by their names in the resource."""
    return {to_field_name(one.name): one.annotation for one in list_settings(model)}
