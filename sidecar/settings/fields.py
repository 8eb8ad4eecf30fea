"""Value types of the sidecar's settings that have a short form.

`scale-up-policies: 4` and a list of policies are short for
`scale-up-policies: {select: min, policies: [{type: percent, value: 100, period: 60 s}]}`.
"""

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from trimtab.common.settings.settings_model import Duration, Parsed, SettingsModel, format_duration, setting
from trimtab.common.units import parse_seconds
from trimtab.sidecar.model.hpa_behavior import (
    DEFAULT_TOLERANCE,
    Direction,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from trimtab.sidecar.model.schedule import CronPeriod

PauseOption: TypeAlias = Literal["none", "scale-up", "scale-down", "all"]

_FRESHNESS_METRIC: Final = "p99-freshness"
_WORKLOAD_PATTERN: Final = re.compile(r"(deployment|statefulset)/[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


class ScalingPolicySetting(SettingsModel):
    """One scaling policy, as the HPA's; a period of 0 means one iteration."""

    type: Literal["pods", "percent"] = setting("Unit of the value.")
    value: int = setting("Most replicas, or percent of them, to add or remove in a period.")
    period: Duration = setting("Length of the period.")

    @property
    def scaling_policy(self) -> ScalingPolicy:
        """Return the policy as decisions use it."""
        return ScalingPolicy(self.value, self.period, is_percent=self.type == "percent")


class ScalingRulesSetting(SettingsModel):
    """The scaling policies of one direction."""

    select: SelectPolicy = setting("Policy that applies of several.", default=SelectPolicy.MAX)
    policies: tuple[ScalingPolicySetting, ...] = setting("The policies.", default=())

    def build_rules(self, stabilization_window: float, tolerance: float) -> ScalingRules:
        """Return the rules as decisions use them; the window is in seconds."""
        policies = tuple(policy.scaling_policy for policy in self.policies)
        return ScalingRules(policies, self.select, stabilization_window, tolerance)


class ToleranceSetting(SettingsModel):
    """The tolerance of each direction, as fractions of the load."""

    scale_up: float = setting("Tolerance of scale-up.", default=DEFAULT_TOLERANCE)
    scale_down: float = setting("Tolerance of scale-down.", default=DEFAULT_TOLERANCE)


class SchedulePeriodSetting(SettingsModel):
    """A period of the schedule, between two cron lines, with its own limits."""

    start: str = setting("Cron line of the beginning.")
    end: str = setting("Cron line of the end.")
    timezone: str = setting("IANA time zone of both lines.", default="UTC")
    min: int | None = setting("Fewest replicas in the period.", default=None)
    max: int | None = setting("Most replicas in the period.", default=None)
    pause: PauseOption = setting("Directions that do not scale in the period.", default="none")

    @property
    def cron_period(self) -> CronPeriod:
        """Return the period as decisions use it."""
        paused = expand_paused_directions(self.pause)
        return CronPeriod(self.start, self.end, self.timezone, self.min, self.max, paused)


def expand_paused_directions(option: PauseOption) -> frozenset[Direction]:
    """Return the paused directions."""
    return frozenset(direction for direction in Direction if option in (direction, "all"))


def build_pod_rules(count: int) -> ScalingRulesSetting:
    """Return the rules of the short form `scale-up-policies: 4`."""
    # a period of 0 is one iteration; the cooldown spaces the changes
    return ScalingRulesSetting(policies=(ScalingPolicySetting(type="pods", value=count, period=0),))


def _parse_freshness_slo(value: Any) -> float:
    metric, _, duration = str(value).strip().partition(" ")
    if metric != _FRESHNESS_METRIC:
        raise ValueError(f'{value!r} is not understood; write it like "{_FRESHNESS_METRIC} 30 s"')
    return parse_seconds(duration, "value")


def _render_freshness_slo(seconds: float) -> str:
    return f"{_FRESHNESS_METRIC} {format_duration(seconds)}"


def _expand_scaling_rules(value: Any) -> Any:
    if isinstance(value, int):
        return build_pod_rules(value)
    return {"policies": value} if isinstance(value, list) else value


def _render_scaling_rules(rules: ScalingRulesSetting) -> str:
    return ", ".join(f"{policy.value}" for policy in rules.policies)


def _expand_tolerances(value: Any) -> Any:
    is_number = isinstance(value, int | float)
    return ToleranceSetting(scale_up=value, scale_down=value) if is_number else value


def _render_tolerances(tolerances: ToleranceSetting) -> str:
    return f"{tolerances.scale_up:g}"


def _check_workload_ref(value: Any) -> Any:
    if isinstance(value, str) and _WORKLOAD_PATTERN.fullmatch(value) is None:
        # without the value, which may be the content of a referenced secret
        raise ValueError("write deployment/NAME or statefulset/NAME, like deployment/lake")
    return value


FreshnessSlo = Annotated[float, Parsed(_parse_freshness_slo, _render_freshness_slo)]
ScalingRulesOption = Annotated[ScalingRulesSetting, Parsed(_expand_scaling_rules, _render_scaling_rules)]
ToleranceOption = Annotated[ToleranceSetting, Parsed(_expand_tolerances, _render_tolerances)]
WorkloadRef = Annotated[str, Parsed(_check_workload_ref)]
