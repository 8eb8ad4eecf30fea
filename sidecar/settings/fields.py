"""The kinds of values that settings have, as people write them: "30 s", "2.3 MB/s", a list.

What has parts may be written short: `step-out: 4`, or a list of policies, or everything:
`step-out: {select: min, policies: [{type: percent, value: 100, period: 60 s}]}`.
"""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from trimtab.common.units import parse_rate, parse_seconds
from trimtab.sidecar.decision.hpa_behavior import Pace, Rules, Select, Way
from trimtab.sidecar.decision.schedule import Period
from trimtab.sidecar.errors import BadSetting


def _named(info: ValidationInfo) -> str:
    return (info.field_name or "").replace("_", "-")


def _seconds(value: Any, info: ValidationInfo) -> float:
    return parse_seconds(value, _named(info))


def _rate(value: Any, info: ValidationInfo) -> float:
    return parse_rate(value, _named(info))


def _list(value: Any) -> Any:
    if isinstance(value, str):
        names = (value,) if value.startswith("^") else re.split(r"\s*,\s*", value.strip())
        if not all(names):
            raise BadSetting(
                f"topics: a name is empty in {value!r}; write names with commas, like "
                '"orders,clicks"'
            )
        return tuple(names)
    return value


def _goal(value: Any, info: ValidationInfo) -> float:
    kind, _, time = str(value).strip().partition(" ")
    if kind != "p99-freshness":
        raise BadSetting(f'goal: {value!r} is not understood; write it like "p99-freshness 30 s"')
    return parse_seconds(time, _named(info))


def _steps(value: Any) -> Any:
    if isinstance(value, int):
        return {"policies": [{"type": "pods", "value": value, "period": 0}]}
    return {"policies": value} if isinstance(value, list) else value


def _bands(value: Any) -> Any:
    return {"out": value, "in": value} if isinstance(value, int | float) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]
Rate = Annotated[float, BeforeValidator(_rate)]
Goal = Annotated[float, BeforeValidator(_goal)]
Names = Annotated[tuple[str, ...], BeforeValidator(_list)]
Paused: TypeAlias = Literal["none", "in", "out", "all"]


class _Parts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class StepPolicy(_Parts):
    """One policy of the HPA's: so many pods, or percent of them, in a period; 0: in a turn."""

    type: Literal["pods", "percent"]
    value: int
    period: Seconds

    @property
    def pace(self) -> Pace:
        """Return what the decision goes by."""
        return Pace(self.value, self.period, percent=self.type == "percent")


class StepPolicies(_Parts):
    """The policies of one direction, and which of them holds."""

    select: Select = Select.MAX
    policies: tuple[StepPolicy, ...] = ()

    def rules(self, window: float, dead_band: float) -> Rules:
        """Return what the decision goes by."""
        return Rules(tuple(p.pace for p in self.policies), self.select, window, dead_band)


class DeadBands(_Parts):
    """The dead band of each direction, as shares."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"))

    out: float = 0.1
    in_: float = 0.1


class SchedulePeriod(_Parts):
    """A period of the schedule: cron lines, and what holds between them."""

    start: str
    end: str
    timezone: str = "UTC"
    min: int | None = None
    max: int | None = None
    pause: Paused = "none"

    @property
    def period(self) -> Period:
        """Return what the decision goes by."""
        return Period(self.start, self.end, self.timezone, self.min, self.max, ways(self.pause))


Steps = Annotated[StepPolicies, BeforeValidator(_steps)]
Bands = Annotated[DeadBands, BeforeValidator(_bands)]


def ways(paused: Paused) -> frozenset[Way]:
    """Return the directions that are paused."""
    return frozenset(way for way in Way if paused in (way, "all"))


def steps(count: int) -> StepPolicies:
    """Return the policies that `step-out: 4` stands for."""
    return StepPolicies(policies=(StepPolicy(type="pods", value=count, period=0),))
