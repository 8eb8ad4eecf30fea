"""Settings of a sidecar with many groups: which groups there are, and the settings of each.

1. A group's settings are the common ones, the file's and flags', with its own in their place.
2. Settings of the process (`PROCESS_SETTINGS`) are common: an entry that has one is refused.
3. What is wrong with an entry is that group's error. What is wrong with the process's settings, or with
   every entry, is the sidecar's.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import mask_secrets_in_errors, resolve_secrets
from trimtab.common.settings.settings_model import SettingsModel, list_settings, setting, validate_settings
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.settings.settings import (
    SidecarSettings,
    load_resolved_settings,
    merge_flags,
    read_settings_file,
)

PROCESS_SETTINGS: Final = frozenset(
    {
        *("bootstrap", "kafka", "timeout", "interval", "kubeconfig", "stop-workers"),
        *("plan-topic", "write-rate-topic", "decision-topic", "replication-factor"),
        *("host", "port", "tls-certificate", "tls-key", "token-file", "telemetry"),
        *("prometheus-url", "prometheus-token-file"),
        *("grpc-host", "grpc-port", "grpc-tls-certificate", "grpc-tls-key", "grpc-client-ca"),
    }
)
# the web server's address is in the state folder, and a dry run takes no shards
_READ_BY_PROCESS: Final = PROCESS_SETTINGS | {"state-dir", "dry-run"}
GROUP_FOLDER: Final = "groups"  # in the common state folder; a group's own is below it
_GRPC_PREFIX: Final = "grpc-"  # only groups of target keda have these settings
# of the process, which has no consumers and measures nothing
_UNUSED_SETTINGS: Final[Mapping[str, str]] = {"group": "-", "capacity": "1 MB/s", "window": "1 d"}

# the target of a group that goes from one sidecar to another (`shard-topic`) must not be a part of either
UNMOVABLE_TARGETS: Final[Mapping[str, str]] = {
    "process": "target=process starts consumers beside the sidecar, and with shard-topic another sidecar "
    "would start them again; give the group a sidecar of its own",
    "keda": "target=keda: KEDA asks one sidecar, and with shard-topic another one may have the group; give "
    "the groups of KEDA a sidecar without shard-topic",
}


class GroupListOptions(SettingsModel, owner="the sidecar"):
    """Settings that give one sidecar many groups."""

    groups: tuple[dict[str, Any], ...] = setting(
        "Groups to manage: a list of mappings with `group` and settings that replace the common ones.",
        default=(),
        example='a list of mappings, like [{group: lake, capacity: "2 MB/s"}, {group: clicks, max: 4}]',
    )
    group_pattern: str | None = setting(
        'Regular expression: every consumer group whose whole name matches is managed, like "lake-.*".',
        default=None,
    )
    custom_resources: bool = setting(
        "Manage the groups of the Kubernetes resources `ConsumerGroupScaler`; see "
        "[custom resource](custom-resource.md).",
        default=False,
    )
    workload_selector: str | None = setting(
        "Label selector, like `trimtab.io/scale=true`: manage the groups that the annotations of matching "
        "Deployments and StatefulSets name; see [labelled workloads](custom-resource.md#labelled-workloads).",
        default=None,
    )
    watch_namespace: str | None = setting(
        "Namespace of these resources and workloads.",
        default=None,
        default_text="the pod's, else the kubeconfig's",
    )
    shard_topic: str | None = setting(
        "Topic whose partitions are shards: sidecars with the same one divide the groups among them; see "
        "[several sidecars](many-groups.md#several-sidecars).",
        default=None,
        default_text="this sidecar has all groups",
    )

    def find_problems(self, given: Collection[str]) -> Iterable[str]:
        """Yield the contradictions between these settings."""
        del given
        if self.watch_namespace is not None and not self.has_kubernetes_objects:
            yield (
                "watch-namespace is given, but neither custom-resources nor workload-selector; "
                "write custom-resources: true, too"
            )
        if self.shard_topic is not None and not self.shard_topic.strip():
            yield "shard-topic is empty; name a topic"
        if self.workload_selector is not None and not self.workload_selector.strip():
            yield "workload-selector is empty, which matches every workload; name a label"

    @property
    def has_kubernetes_objects(self) -> bool:
        """Whether Kubernetes objects name groups, too."""
        return self.custom_resources or self.workload_selector is not None


GROUP_LIST_NAMES: Final = frozenset(one.name for one in list_settings(GroupListOptions))


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """One group to manage: its settings, or what is wrong with them."""

    group: str
    origin: str  # what names the group, for errors and `/groups`: "groups, entry 2", "group-pattern"
    settings: SidecarSettings | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class GroupListSettings:
    """Settings of a sidecar with many groups."""

    process: SidecarSettings  # of its `group` and `capacity` nothing is used
    options: GroupListOptions
    common: Mapping[str, Any]  # secrets resolved
    written: Mapping[str, Any]  # secrets as references

    def build_entry(self, group: str, own: Mapping[str, Any], origin: str) -> GroupEntry:
        """Return a group with the common settings and its own."""
        try:
            with mask_secrets_in_errors(self.written, os.environ):
                return GroupEntry(group, origin, load_resolved_settings(self._merge_own(group, own)))
        except SettingError as error:
            return GroupEntry(group, origin, None, f"{origin}: {error}")

    def _merge_own(self, group: str, own: Mapping[str, Any]) -> dict[str, Any]:
        misplaced = sorted(PROCESS_SETTINGS & own.keys())
        if misplaced:
            raise SidecarSettingError(
                f"{' and '.join(misplaced)}: a setting of the whole process; write it beside groups"
            )
        given = {**self._list_defaults(), **self.common, **own, "group": group}
        folder = self.common.get("state-dir")
        if folder is not None and "state-dir" not in own:
            given["state-dir"] = str(Path(folder) / GROUP_FOLDER / quote(group, safe=""))
        if self.options.shard_topic is not None and given.get("target") in UNMOVABLE_TARGETS:
            raise SidecarSettingError(UNMOVABLE_TARGETS[given["target"]])
        if given.get("target") == "keda":
            return given
        return {name: value for name, value in given.items() if not name.startswith(_GRPC_PREFIX)}

    def list_entries(self) -> tuple[GroupEntry, ...]:
        """Return the groups of the setting `groups`."""
        entries: dict[str, GroupEntry] = {}
        for number, own in enumerate(self.options.groups, 1):
            origin = f"groups, entry {number}"
            named = {name.replace("_", "-"): value for name, value in own.items()}
            group = named.pop("group", "")
            if not isinstance(group, str) or not group.strip():
                group, error = f"({origin})", f"{origin}: group is missing; give the group's name"
                entries[group] = GroupEntry(group, origin, None, error)
            elif group in entries:
                twice = f"({origin})"
                error = f"{origin}: group {group!r} is there twice; remove one of the two"
                entries[twice] = GroupEntry(twice, origin, None, error)
            else:
                entries[group] = self.build_entry(group, named, origin)
        return tuple(entries.values())

    def match_groups(self, existing: tuple[str, ...]) -> Iterator[GroupEntry]:
        """Yield the groups that `group-pattern` matches, without those that `groups` names."""
        named = {own.get("group") for own in self.options.groups}
        for group in existing:
            pattern = self.options.group_pattern
            if group == self.options.shard_topic:
                continue  # the sidecars' own
            if pattern and group not in named and re.fullmatch(pattern, group):
                yield self.build_entry(group, {}, "group-pattern")

    def _list_defaults(self) -> dict[str, Any]:
        # a lease for each workload would be hundreds of writes a second: the decision topic tells the owner
        return {"leader-election": False}


EntryFinder: TypeAlias = Callable[[GroupListSettings, str], GroupEntry | None]
"""Returns what names a group outside of the file; None if nothing does."""


def load_settings_of_groups(
    file: Path | None, flags: Mapping[str, Any], find_entry: EntryFinder | None = None
) -> SidecarSettings | GroupListSettings:
    """Return the settings of one group, or of many if the file lists them and no flag names one.

    Raises as `load_settings_of_one_group` does.
    """
    given = merge_flags(read_settings_file(file), flags)
    with mask_secrets_in_errors(given, os.environ):  # validation errors repeat the value
        resolved = resolve_secrets(given, os.environ)
        if not GROUP_LIST_NAMES & resolved.keys():
            return load_resolved_settings(resolved)
        options, common = _split_options(resolved)
        if isinstance(group := common.pop("group", None), str):
            return _select_group(_build_list(options, common, given), group, find_entry)
        return _build_list(options, common, given)


def load_settings_of_one_group(
    file: Path | None, flags: Mapping[str, Any], find_entry: EntryFinder | None = None
) -> SidecarSettings:
    """Return the settings of one group, which `flags` name if the file lists many.

    `find_entry` looks for a group that Kubernetes objects name, if the file says that they do. Raises
    SettingError, and what `find_entry` raises.
    """
    settings = load_settings_of_groups(file, flags, find_entry)
    if isinstance(settings, SidecarSettings):
        return settings
    raise SidecarSettingError(f"this file has many groups; name one: --group NAME ({_list_names(settings)})")


def _split_options(given: Mapping[str, Any]) -> tuple[GroupListOptions, dict[str, Any]]:
    own = {name: value for name, value in given.items() if name in GROUP_LIST_NAMES}
    options = validate_settings(GroupListOptions, own)
    try:
        re.compile(options.group_pattern or "")
    except re.error as error:
        raise SidecarSettingError(f"group-pattern={options.group_pattern!r} is no pattern: {error}") from None
    return options, {name: value for name, value in given.items() if name not in GROUP_LIST_NAMES}


def _build_list(
    options: GroupListOptions, common: Mapping[str, Any], written: Mapping[str, Any]
) -> GroupListSettings:
    of_process = {
        name: value
        for name, value in common.items()
        if name in _READ_BY_PROCESS and not name.startswith(_GRPC_PREFIX)
    }
    process = load_resolved_settings({**of_process, **_UNUSED_SETTINGS})
    made = GroupListSettings(process, options, common, written)
    entries = made.list_entries()
    has_other_groups = options.group_pattern is not None or options.has_kubernetes_objects
    if entries and all(entry.settings is None for entry in entries) and not has_other_groups:
        raise SidecarSettingError("; ".join(entry.error for entry in entries))
    return made


def _select_group(listed: GroupListSettings, group: str, find_entry: EntryFinder | None) -> SidecarSettings:
    # in the order in which the sidecar of many groups asks its sources
    entry = next((entry for entry in listed.list_entries() if entry.group == group), None)
    if entry is None and find_entry is not None and listed.options.has_kubernetes_objects:
        entry = find_entry(listed, group)
    entry = entry or next(listed.match_groups((group,)), None)
    if entry is None:
        text = f"group {group!r} is none of the file's groups: {_list_names(listed)}"
        if listed.options.has_kubernetes_objects:
            more = "no Kubernetes object names it" if find_entry else "those are managed without --group"
            text = f"{text}; {more}"
        raise SidecarSettingError(text)
    if entry.settings is None:
        raise SidecarSettingError(entry.error)
    return entry.settings


def _list_names(listed: GroupListSettings) -> str:
    names = [entry.group for entry in listed.list_entries()]
    if listed.options.custom_resources:
        names.append("those of ConsumerGroupScaler resources")
    if listed.options.workload_selector is not None:
        names.append(f"those of workloads with label {listed.options.workload_selector}")
    return ", ".join(names)
