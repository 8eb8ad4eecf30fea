"""Checks that the API server makes: bounds of single fields, and rules between fields in CEL.

They are those of `trimtab.sidecar.settings.cross_checks` that need no setting beside the resource: a
field that is not given may be a common setting of the sidecar's file, so a rule concludes nothing from
its absence. What passes is checked again by the sidecar, with all settings and in its own words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_FRACTION: Final = {"minimum": 0, "exclusiveMinimum": True, "maximum": 1}
_TOLERANCE: Final = {"minimum": 0, "maximum": 1, "exclusiveMaximum": True}

# by the field's path; "[]" is an entry of a list
BOUNDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "group": {"minLength": 1},
    "headroom": _FRACTION,
    "min": {"minimum": 0},
    "max": {"minimum": 1},
    "consumersPerReplica": {"minimum": 1},
    "fallbackReplicas": {"minimum": 0},
    "learnedCapacityMin": _FRACTION,
    "learnedCapacityMax": {"minimum": 1},
    "leadAssignors": {"minItems": 1},
    "tolerance.scaleUp": _TOLERANCE,
    "tolerance.scaleDown": _TOLERANCE,
    "scaleUpPolicies.policies[].value": {"minimum": 1},
    "scaleDownPolicies.policies[].value": {"minimum": 1},
    "schedule[].min": {"minimum": 0},
    "schedule[].max": {"minimum": 1},
    "coPartitioned[]": {"minItems": 2},
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression that must be true, and the error if it is not."""

    expression: str
    message: str


def _check_policies() -> tuple[Rule, ...]:
    policies = "(has(self.policies) && size(self.policies) > 0)"
    return (
        Rule(
            f"{policies} || (has(self.select) && self.select == 'disabled')",
            "has no policies; give one, or select: disabled",
        ),
    )


_LEAD_FIELDS: Final = ("leadAssignors", "leadSessionTimeout", "takeLead")

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "": (
        Rule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            "min is above max; lower one or raise the other",
        ),
        Rule(
            "!has(self.min) || self.min > 0 || has(self.topics)",
            "min=0 needs topics: a group without replicas does not name what it reads",
        ),
        Rule(
            "!has(self.target) || self.target == 'none' || has(self.workload)",
            "this target needs workload: deployment/NAME or statefulset/NAME",
        ),
        Rule(
            "!has(self.workload) || !has(self.target) || self.target != 'none'",
            "a workload is given, but target=none; write target=kubernetes (or keda)",
        ),
        Rule(
            "!has(self.fallbackReplicas) || !has(self.fallback) || self.fallback != 'current'",
            "fallbackReplicas is given, but fallback=current; leave one of the two out",
        ),
        Rule(
            "!has(self.fallbackReplicas) || ((!has(self.min) || self.min <= self.fallbackReplicas) "
            "&& (!has(self.max) || self.fallbackReplicas <= self.max))",
            "fallbackReplicas is not between min and max",
        ),
        Rule(
            "!has(self.freshnessSlo) || (!has(self.catchUpTime) && !has(self.backlogGrace))",
            "freshnessSlo sets catchUpTime and backlogGrace; leave them out",
        ),
        Rule(
            "!has(self.moveCost) || !has(self.heuristic) || self.heuristic == 'steady'",
            "moveCost tunes steady, but another heuristic is given; leave one of the two out",
        ),
        Rule(
            "!has(self.queue) || !has(self.topics) || "
            "(size(self.topics) == 1 && !self.topics[0].startsWith('^'))",
            "a queue needs the name of its one topic (topics)",
        ),
        Rule(
            "!has(self.queueMarkers) || !has(self.queue) || self.queue == 'kmq'",
            "queueMarkers is given, but only a kmq queue has markers",
        ),
        Rule(
            "!has(self.queue) || self.queue != 'share' || !has(self.learnCapacity) || !self.learnCapacity",
            "learnCapacity is about a placement, and queue=share has none",
        ),
        Rule(
            "!has(self.lead) || !self.lead || !has(self.queue) || self.queue != 'share'",
            "lead is about a group whose members assign partitions, and queue=share has none",
        ),
        Rule(
            "!has(self.lead) || !self.lead || !has(self.protocol) || self.protocol != 'consumer'",
            "lead is about a classic group, but protocol=consumer; leave one of the two out",
        ),
        Rule(
            f"!has(self.lead) || self.lead || !({' || '.join(f'has(self.{name})' for name in _LEAD_FIELDS)})",
            "settings of the lead are given, but lead is false",
        ),
    ),
    "scaleUpPolicies": _check_policies(),
    "scaleDownPolicies": _check_policies(),
    "schedule[]": (
        Rule("self.start != self.end", "start and end are the same cron line"),
        Rule(
            "has(self.min) || has(self.max) || (has(self.pause) && self.pause != 'none')",
            "has neither min nor max nor pause; it would change nothing",
        ),
        Rule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            "min is above max; lower one or raise the other",
        ),
    ),
}
