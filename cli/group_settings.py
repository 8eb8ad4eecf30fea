"""The settings of the group that a command works on, from its options."""

from collections.abc import Mapping
from typing import Any, Final

from trimtab.cli.setting_pairs import parse_pairs
from trimtab.cli.settings_options import GroupOptions
from trimtab.common.errors import SettingError
from trimtab.sidecar.settings.group_list import GROUP_LIST_NAMES, load_settings_of_one_group
from trimtab.sidecar.settings.settings import SidecarSettings, read_settings_file

_UNKNOWN_CAPACITY: Final = "1 MB/s"  # settings require one; read-only commands do without


def load_group_settings(
    options: GroupOptions, more: Mapping[str, Any] | None = None
) -> tuple[SidecarSettings, bool]:
    """Return the settings, and whether a capacity is among them. Raises SettingError."""
    flags = {**options.flags, **(more or {})}
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
    return load_settings_of_one_group(options.config, given), is_known
