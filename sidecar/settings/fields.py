"""The kinds of values that settings have, as people write them: "30 s", "2.3 MB/s", a list.

What has parts may be written short: `scale-up-policies: 4`, or a list of policies, or everything:
`scale-up-policies: {select: min, policies: [{type: percent, value: 100, period: 60 s}]}`.
"""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from trimtab.common.units import parse_rate, parse_seconds
from trimtab.sidecar.decision.hpa_behavior import (
    Direction,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from trimtab.sidecar.decision.schedule import CronPeriod
from trimtab.sidecar.errors import SidecarSettingError


def _setting_name(info: ValidationInfo) -> str:
    return (info.field_name or "").replace("_", "-")


def _parse_seconds(value: Any, info: ValidationInfo) -> float:
    return parse_seconds(value, _setting_name(info))


def _parse_rate(value: Any, info: ValidationInfo) -> float:
    return parse_rate(value, _setting_name(info))


def _parse_names(value: Any) -> Any:
    if isinstance(value, str):
        names = (value,) if value.startswith("^") else re.split(r"\s*,\s*", value.strip())
        if not all(names):
            raise SidecarSettingError(
                f"topics: a name is empty in {value!r}; write names with commas, like "
                '"orders,clicks"'
            )
        return tuple(names)
    return value


def _parse_freshness_slo(value: Any, info: ValidationInfo) -> float:
    kind, _, time = str(value).strip().partition(" ")
    if kind != "p99-freshness":
        raise SidecarSettingError(
            f'goal: {value!r} is not understood; write it like "p99-freshness 30 s"'
        )
    return parse_seconds(time, _setting_name(info))


def _expand_scaling_rules(value: Any) -> Any:
    if isinstance(value, int):
        return {"policies": [{"type": "pods", "value": value, "period": 0}]}
    return {"policies": value} if isinstance(value, list) else value


def _expand_tolerances(value: Any) -> Any:
    return {"out": value, "in": value} if isinstance(value, int | float) else value


DurationField = Annotated[float, BeforeValidator(_parse_seconds)]
RateField = Annotated[float, BeforeValidator(_parse_rate)]
FreshnessSloField = Annotated[float, BeforeValidator(_parse_freshness_slo)]
NameListField = Annotated[tuple[str, ...], BeforeValidator(_parse_names)]
PauseOption: TypeAlias = Literal["none", "in", "out", "all"]


class _SettingGroup(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ScalingPolicySetting(_SettingGroup):
    """One policy of the HPA's: so many pods, or percent of them, in a period; 0: in a turn."""

    type: Literal["pods", "percent"]
    value: int
    period: DurationField

    @property
    def scaling_policy(self) -> ScalingPolicy:
        """Return what the decision goes by."""
        return ScalingPolicy(self.value, self.period, is_percent=self.type == "percent")


class ScalingRulesSetting(_SettingGroup):
    """The policies of one direction, and which of them holds."""

    select: SelectPolicy = SelectPolicy.MAX
    policies: tuple[ScalingPolicySetting, ...] = ()

    def build_rules(self, stabilization_window: float, tolerance: float) -> ScalingRules:
        """Return what the decision goes by."""
        return ScalingRules(
            tuple(p.scaling_policy for p in self.policies),
            self.select,
            stabilization_window,
            tolerance,
        )


class ToleranceSetting(_SettingGroup):
    """The dead band of each direction, as shares."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"))

    out: float = 0.1
    in_: float = 0.1


class SchedulePeriodSetting(_SettingGroup):
    """A period of the schedule: cron lines, and what holds between them."""

    start: str
    end: str
    timezone: str = "UTC"
    min: int | None = None
    max: int | None = None
    pause: PauseOption = "none"

    @property
    def cron_period(self) -> CronPeriod:
        """Return what the decision goes by."""
        return CronPeriod(
            self.start,
            self.end,
            self.timezone,
            self.min,
            self.max,
            parse_paused_directions(self.pause),
        )


ScalingRulesField = Annotated[ScalingRulesSetting, BeforeValidator(_expand_scaling_rules)]
ToleranceField = Annotated[ToleranceSetting, BeforeValidator(_expand_tolerances)]


def parse_paused_directions(option: PauseOption) -> frozenset[Direction]:
    """Return the directions that are paused."""
    return frozenset(way for way in Direction if option in (way, "all"))


def build_pod_rules(count: int) -> ScalingRulesSetting:
    """Return the policies that `scale-up-policies: 4` stands for."""
    return ScalingRulesSetting(policies=(ScalingPolicySetting(type="pods", value=count, period=0),))
