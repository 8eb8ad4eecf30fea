"""The settings of the group that a command works on, from its options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trimtab.cli.setting_pairs import parse_pairs
from trimtab.cli.settings_options import GroupOptions
from trimtab.common.errors import SettingError
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings, read_settings_file

_UNKNOWN_CAPACITY: Final = "1 MB/s"
"""A placeholder: settings require a capacity, and commands that only look do without."""


def load_group_settings(
    options: GroupOptions, more: Mapping[str, Any] | None = None
) -> tuple[SidecarSettings, bool]:
    """Return the settings, and whether they name a capacity. Raises SettingError."""
    flags = {**options.flags, **(more or {})}
    file = read_settings_file(options.config)
    _require_group({**file, **flags}, options.config)
    is_known = flags.get("capacity") is not None or "capacity" in file
    given = {**flags, "kafka": parse_pairs("--kafka", options.kafka) or None}
    if not is_known:
        given["capacity"] = _UNKNOWN_CAPACITY
    return load_settings(options.config, given), is_known


def _require_group(given: Mapping[str, Any], config: Path | None) -> None:
    missing = [f"--{name}" for name in ("bootstrap", "group") if name not in given]
    if missing:
        where = "" if config is None else f", or add them to {config}"
        raise SettingError(
            f"{' and '.join(missing)} missing; say which group is meant: "
            f"--bootstrap host:port --group NAME, or --config FILE{where}"
        )
