"""Settings of a live simulation: the sidecar's, and the start-up time of its consumers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.common.errors import SettingError
from trimtab.common.settings.settings_model import list_settings
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.measurement.load_forecast import LoadForecaster
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.settings.options import SidecarOptions
from trimtab.sidecar.settings.settings import load_settings

SIMULATED_GROUP: Final = "simulated"

OPTION_NAMES: Final[Mapping[str, str]] = {
    "capacity": "--capacity", "headroom": "--headroom", "heuristic": "--heuristic", "interval": "--tick",
    "season": "--season",
}  # fmt: skip
"""Settings that are options of the simulation itself."""

SIMULATED_SETTINGS: Final = (
    "backlog-grace", "catch-up-time", "co-partitioned", "cooldown", "drain-retry", "freshness-slo",
    "idle-after", "max", "min", "move-cost", "pause", "scale-down-policies",
    "scale-down-stabilization-window", "scale-up-evaluation-retry", "scale-up-evaluation-window",
    "scale-up-policies", "scale-up-stabilization-window", "schedule", "startup-timeout", "tolerance",
)  # fmt: skip
"""Settings that can change the closed loop; a run with another one would show what it would without it."""


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Settings of the simulated sidecar."""

    startup: float = 20.0  # seconds from a consumer's start to its join
    # Length in seconds of the season by which write rates are forecast; None: they stay as they are.
    season: float | None = None
    sidecar: Mapping[str, Any] = field(default_factory=dict[str, Any])  # by name; others have their defaults

    def __post_init__(self) -> None:
        """Raise SidecarSettingError for a setting without effect here; wrong names are left to `check`."""
        known = {one.name for one in list_settings(SidecarOptions)}
        for name in (given.replace("_", "-") for given in self.sidecar):
            if name in OPTION_NAMES:
                option = OPTION_NAMES[name]
                raise SidecarSettingError(f"{name}: set by the simulation's own options; write {option}")
            if name in known and name not in SIMULATED_SETTINGS:
                others = ", ".join(SIMULATED_SETTINGS)
                raise SidecarSettingError(
                    f"{name}: not simulated; leave it out. The closed loop has {others}"
                )

    def build_forecaster(self, tick: float, policy: AutoscalingPolicy) -> LoadForecaster | None:
        """Return the sidecar's forecaster of the load; None without a season."""
        look_ahead = policy.scale_down.stabilization_window
        return None if self.season is None else LoadForecaster(self.season, tick, look_ahead=look_ahead)

    def check(self, heuristic: str, setup: SimulationSetup, stream: WriteRateStream) -> None:
        """Raise SettingError unless a sidecar with this heuristic can run on the stream."""
        policy = self.build_policy(heuristic, setup, len(stream.partitions))
        topics = {p.topic for p in stream.partitions}
        grouped = {topic for group in policy.placement.co_partitioned for topic in group}
        if missing := sorted(grouped - topics):
            there = ", ".join(sorted(topics))
            raise SidecarSettingError(
                f"co-partitioned: {missing[0]} is no topic of the stream, which has {there}"
            )

    def build_policy(self, heuristic: str, setup: SimulationSetup, partitions: int) -> AutoscalingPolicy:
        """Return the policy of a sidecar that decides once a tick. Raises SettingError."""
        chosen = {
            "bootstrap": "simulated:9092",
            "group": SIMULATED_GROUP,
            "topics": [SIMULATED_GROUP],  # named, as `min: 0` needs it
            "target": "process",
            "worker-command": ["worker", "{instance}"],
            "state-dir": "unused",
            "capacity": setup.capacity,
            "headroom": setup.headroom,
            "heuristic": heuristic,
            "interval": setup.tick,
            "window": 2 * setup.tick,  # the shortest that the sidecar accepts
            "max": partitions,
        }
        try:
            return load_settings(None, {**chosen, **self.sidecar}).autoscaling_policy
        except SettingError as error:
            text = _name_options(str(error))
            if text == str(error):
                raise
            raise SidecarSettingError(text) from None


def _name_options(text: str) -> str:
    """Return an error text with the simulation's options in place of the settings that they set."""
    for name, option in OPTION_NAMES.items():
        text = re.sub(rf"(?<![\w-]){name}=", f"{option} ", text)
    return text
