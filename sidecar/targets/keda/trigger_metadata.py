"""Comparison of a KEDA trigger's metadata with the sidecar's settings. Pure.

Keys have the names of KEDA's `kafka` and `apache-kafka` scalers. Keys without a meaning here and
unknown keys are rejected, not ignored. Settings the sidecar does not have (topics, if it takes
those the group reads) are not compared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from trimtab.common.errors import suggest_name
from trimtab.sidecar.errors import TriggerMismatchError
from trimtab.sidecar.settings.settings import SidecarSettings

# Keys that KEDA itself reads: the connection to this service
KEDA_KEYS: Final = frozenset({"scalerAddress", "enableTLS", "unsafeSsl"})

# Keys by which the kafka scaler derives a count from lag
LAG_SCALING_KEYS: Final = frozenset(
    {
        "activationLagThreshold",
        "allowIdleConsumers",
        "ensureEvenDistributionOfPartitions",
        "excludePersistentLag",
        "lagThreshold",
        "limitToPartitionsWithLag",
        "partitionLimitation",
        "scaleToZeroOnInvalidOffset",
    }
)

# Keys by which the kafka scaler connects to the brokers
BROKER_CONNECTION_KEYS: Final = frozenset({"awsRegion", "sasl", "saslTokenProvider", "tls", "version"})

CountT = TypeVar("CountT")

FROM_ENV_SUFFIX: Final = "FromEnv"  # KEDA reads the value from the workload's environment


@dataclass(frozen=True, slots=True)
class ScaledGroup:
    """The group this sidecar scales."""

    bootstrap: str
    group: str
    topics: tuple[str, ...]  # empty: all topics the group reads
    offset_reset: str

    @classmethod
    def from_settings(cls, settings: SidecarSettings) -> "ScaledGroup":
        """Return the group of the settings."""
        reset = settings.offset_reset or "latest"
        return cls(settings.bootstrap, settings.group, settings.topics, reset)


def check_trigger_metadata(metadata: Mapping[str, str], scaled_group: ScaledGroup) -> None:
    """Raise TriggerMismatchError with all mismatches."""
    given = {name.removesuffix(FROM_ENV_SUFFIX): value for name, value in metadata.items()}
    problems = [_explain_mismatch(name, given[name], scaled_group) for name in sorted(given)]
    if any(problems):
        raise TriggerMismatchError("; ".join(filter(None, problems)))


def select_scaled_group(
    metadata: Mapping[str, str], groups: Mapping[str, tuple[CountT, ScaledGroup]]
) -> tuple[CountT, ScaledGroup]:
    """Return the group that `consumerGroup` names, the only one without it. Raises TriggerMismatchError."""
    if len(groups) == 1:  # a name that differs is a mismatch, and told as one
        return next(iter(groups.values()))
    named = metadata.get("consumerGroup") or metadata.get(f"consumerGroup{FROM_ENV_SUFFIX}")
    if not named:
        raise TriggerMismatchError(f"consumerGroup is missing: this sidecar scales {len(groups)} groups")
    if named not in groups:
        raise TriggerMismatchError(f"consumerGroup is {named!r}, which this sidecar does not scale by KEDA")
    return groups[named]


def _explain_mismatch(name: str, value: str, scaled_group: ScaledGroup) -> str:
    if name in KEDA_KEYS:
        return ""
    if name in GETTER_BY_COMPARED_KEY:
        ours = GETTER_BY_COMPARED_KEY[name](scaled_group)
        same = not ours or _split(value) == _split(ours)  # the order of servers and topics is free
        return "" if same else f"{name} is {value!r}, but this sidecar has {ours!r}"
    if name in LAG_SCALING_KEYS:
        return f"{name} has no effect: the count follows write rate and backlog; remove it"
    if name in BROKER_CONNECTION_KEYS:
        return f"{name} has no effect: the sidecar has its own broker connection; remove it"
    hint = suggest_name(name, [*GETTER_BY_COMPARED_KEY, *KEDA_KEYS], cutoff=0.5)
    hint = hint or f"; known keys: {', '.join(GETTER_BY_COMPARED_KEY)}"
    return f"unknown key {name!r}{hint}"


GETTER_BY_COMPARED_KEY: Final[Mapping[str, Callable[[ScaledGroup], str]]] = {
    "bootstrapServers": lambda ours: ours.bootstrap,
    "consumerGroup": lambda ours: ours.group,
    "topic": lambda ours: ",".join(ours.topics),
    "offsetResetPolicy": lambda ours: ours.offset_reset,
}


def _split(text: str) -> set[str]:
    return {part.strip() for part in text.split(",")}
