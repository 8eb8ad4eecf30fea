"""What `trimtab top`, `explain` and `doctor` have in common: the settings of the group."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.cli.sidecar.run import pairs, require_group

if TYPE_CHECKING:
    from trimtab.sidecar.settings.settings import Settings


def looking(
    config: Path | None, flags: Mapping[str, Any], kafka: list[str] | None
) -> tuple["Settings", bool]:
    """Return the settings, and whether they say what a consumer sustains. Raises SettingError.

    Settings want a capacity; whoever only looks at a group may do without.
    """
    from trimtab.sidecar.settings.settings import load, read  # noqa: PLC0415 - keeps --help fast

    require_group(config, flags.get("bootstrap"), flags.get("group"))
    known = flags.get("capacity") is not None or "capacity" in read(config)
    given = {**flags, "kafka": pairs("--kafka", kafka) or None}
    return load(config, given if known else {**given, "capacity": "1 MB/s"}), known
