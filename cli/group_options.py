"""What `trimtab top`, `explain` and `doctor` have in common: the settings of the group."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.cli.sidecar.run import parse_pairs, require_group

if TYPE_CHECKING:
    from trimtab.sidecar.settings.settings import SidecarSettings


def load_group_settings(
    config: Path | None, flags: Mapping[str, Any], kafka: list[str] | None
) -> tuple["SidecarSettings", bool]:
    """Return the settings, and whether they say what a consumer sustains. Raises SettingError.

    Settings want a capacity; whoever only looks at a group may do without.
    """
    from trimtab.sidecar.settings.settings import load_settings, read_settings_file  # noqa: PLC0415 - keeps --help fast

    require_group(config, flags.get("bootstrap"), flags.get("group"))
    known = flags.get("capacity") is not None or "capacity" in read_settings_file(config)
    given = {**flags, "kafka": parse_pairs("--kafka", kafka) or None}
    return load_settings(config, given if known else {**given, "capacity": "1 MB/s"}), known
