"""Settings of a live simulation: the sidecar's, and the start-up time of its consumers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.sidecar.decision.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.settings.settings import load_settings

SIMULATED_GROUP: Final = "simulated"

# A simulation sets these itself; settings that name a file or an address have no effect in it.
_SIMULATED_SETTINGS: Final = frozenset(
    {"bootstrap", "group", "capacity", "headroom", "heuristic", "interval"}
)


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Settings of the simulated sidecar."""

    startup: float = 20.0  # seconds from a consumer's start to its join
    sidecar: Mapping[str, Any] = field(default_factory=dict[str, Any])  # by name; others have their defaults

    def __post_init__(self) -> None:
        """Raise SidecarSettingError for a setting that the simulation itself sets."""
        taken = sorted(_SIMULATED_SETTINGS & self.sidecar.keys())
        if taken:
            raise SidecarSettingError(
                f"{', '.join(taken)}: set by the simulation's own options; leave it out"
            )

    def build_policy(self, heuristic: str, setup: SimulationSetup, partitions: int) -> AutoscalingPolicy:
        """Return the policy of a sidecar that decides once a tick. Raises SettingError."""
        chosen = {
            "bootstrap": "simulated:9092",
            "group": SIMULATED_GROUP,
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
        return load_settings(None, {**chosen, **self.sidecar}).autoscaling_policy
