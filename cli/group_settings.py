"""The settings of the group that a command works on, from its options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from trimtab.cli.setting_pairs import parse_pairs
from trimtab.cli.settings_options import GroupOptions
from trimtab.common.errors import SettingError
from trimtab.sidecar.errors import SidecarSettingError, require_extra
from trimtab.sidecar.settings.group_list import (
    GROUP_LIST_NAMES,
    GroupEntry,
    GroupListSettings,
    load_settings_of_one_group,
)
from trimtab.sidecar.settings.settings import SidecarSettings, read_settings_file

if TYPE_CHECKING:  # it belongs to an extra
    from trimtab.sidecar.custom_resource.resource_source import ResourceEntry

_UNKNOWN_CAPACITY: Final = "1 MB/s"  # settings require one; read-only commands do without


@dataclass(frozen=True, slots=True)
class SelectedGroup:
    """The group of a command."""

    settings: SidecarSettings
    is_capacity_known: bool
    resource: "ResourceEntry | None" = None  # that names it, and not the file
    listed: GroupListSettings | None = None  # the file's settings, with a resource
    shard_topic: str | None = None  # of the file


def load_group_settings(
    options: GroupOptions, times: Mapping[str, Any] | None = None
) -> tuple[SidecarSettings, bool]:
    """Return the settings, with a command's own times of measuring, and whether a capacity is among them.

    Raises as `select_group` does. Only the file's own times must fit its other settings.
    """
    selected = select_group(options)
    return replace(selected.settings, **(times or {})), selected.is_capacity_known


def select_group(options: GroupOptions) -> SelectedGroup:
    """Return the group that options name, from flags, file, or Kubernetes objects.

    Raises SettingError; StartupError, KubernetesUnavailableError and KubernetesRejectedError if the file
    leaves groups to Kubernetes objects.
    """
    flags = options.flags
    file = read_settings_file(options.config)
    # before the settings' own check, which would name the capacity, too
    missing = [f"--{name}" for name in ("bootstrap", "group") if name not in {**file, **flags}]
    if missing and not GROUP_LIST_NAMES & file.keys():  # of such a file the error lists its groups
        where = "" if options.config is None else f", or add them to {options.config}"
        raise SettingError(
            f"{' and '.join(missing)} missing; say which group is meant: "
            f"--bootstrap host:port --group NAME, or --config FILE{where}"
        )
    is_known = flags.get("capacity") is not None or "capacity" in file
    given = {**flags, "kafka": parse_pairs("--kafka", options.kafka) or None}
    if not is_known:
        given["capacity"] = _UNKNOWN_CAPACITY
    finder = _ResourceFinder()
    settings = load_settings_of_one_group(options.config, given, finder)
    is_known = is_known or finder.has_capacity or _has_entry_capacity(file, settings.group)
    return SelectedGroup(settings, is_known, finder.found, finder.listed, file.get("shard-topic"))


def _has_entry_capacity(file: Mapping[str, Any], group: str) -> bool:
    return any("capacity" in entry for entry in file.get("groups", ()) if entry.get("group") == group)


class _ResourceFinder:
    """Looks for a group among the Kubernetes objects, and keeps what it found."""

    def __init__(self) -> None:
        self.found: ResourceEntry | None = None
        self.listed: GroupListSettings | None = None

    def __call__(self, listed: GroupListSettings, group: str) -> GroupEntry | None:
        """Return the group's entry; None if no object names it."""
        require_extra("a group of Kubernetes objects", "kubernetes", "kubernetes")
        from trimtab.sidecar.custom_resource.factory import find_resource_entry  # noqa: PLC0415 - an extra

        try:
            self.found = find_resource_entry(listed, group)
        except SidecarSettingError as error:
            text = f"group {group!r} is none of the file's groups, and Kubernetes cannot be asked: {error}"
            raise SidecarSettingError(text) from error
        self.listed = listed
        return None if self.found is None else self.found.entry

    @property
    def has_capacity(self) -> bool:
        """Whether the object gives a capacity."""
        return self.found is not None and "capacity" in self.found.resource.spec
