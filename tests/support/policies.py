"""Autoscaling policies from the settings' defaults, for tests that change a few of their fields."""

from dataclasses import replace
from typing import Any

from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.settings.settings import load_settings


def build_policy(**changes: Any) -> AutoscalingPolicy:
    """Return the policy of a sidecar that scales a workload, with `changes` to its fields."""
    required = {"bootstrap": "b:1", "group": "g", "capacity": "100 B/s"}
    return replace(load_settings(None, required).autoscaling_policy, **{"advisory": False, **changes})
