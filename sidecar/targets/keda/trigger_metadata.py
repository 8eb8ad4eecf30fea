"""Whether a trigger's metadata mean the group that this sidecar steers. Pure.

Names are those of KEDA's `kafka` and `apache-kafka` scalers where they mean the same; those that
mean nothing here, and those that nobody knows, are refused rather than ignored. What the sidecar
itself was not told (topics, where it takes those that the group reads) is not compared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from trimtab.common.suggestions import suggest_name
from trimtab.sidecar.errors import TriggerMismatchError
from trimtab.sidecar.settings.settings import SidecarSettings

KEDA_KEYS: Final = frozenset({"scalerAddress", "enableTLS", "unsafeSsl"})
"""What KEDA itself reads: how to reach us."""

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
"""How the kafka scaler makes a count of lag."""

BROKER_CONNECTION_KEYS: Final = frozenset(
    {"awsRegion", "sasl", "saslTokenProvider", "tls", "version"}
)
"""How the kafka scaler reaches the brokers."""

FROM_ENV_SUFFIX: Final = "FromEnv"
"""What a name ends with whose value KEDA takes from the workload's environment."""


@dataclass(frozen=True, slots=True)
class ScaledGroup:
    """What this sidecar steers; no topics: whatever the group reads."""

    bootstrap: str
    group: str
    topics: tuple[str, ...]
    offset_reset: str

    @classmethod
    def from_settings(cls, settings: SidecarSettings) -> "ScaledGroup":
        """Return what the settings say."""
        reset = settings.offset_reset or "latest"
        return cls(settings.bootstrap, settings.group, settings.topics, reset)


def check_trigger_metadata(metadata: Mapping[str, str], scaled_group: ScaledGroup) -> None:
    """Raise TriggerMismatchError with everything that is wrong."""
    given = {name.removesuffix(FROM_ENV_SUFFIX): value for name, value in metadata.items()}
    problems = [
        text
        for name in sorted(given)
        if (text := _explain_mismatch(name, given[name], scaled_group))
    ]
    if problems:
        raise TriggerMismatchError("; ".join(problems))


def _explain_mismatch(name: str, value: str, scaled_group: ScaledGroup) -> str:
    if name in KEDA_KEYS:
        return ""
    if name in GETTER_BY_COMPARED_KEY:
        ours = GETTER_BY_COMPARED_KEY[name](scaled_group)
        same = not ours or _split_comma_list(value) == _split_comma_list(ours)
        return "" if same else f"{name} is {value!r}, but this sidecar has {ours!r}"
    if name in LAG_SCALING_KEYS:
        return f"{name} means nothing here: the count follows write speed and backlog; leave it out"
    if name in BROKER_CONNECTION_KEYS:
        return f"{name} means nothing here: the sidecar has a connection of its own; leave it out"
    hint = suggest_name(name, [*GETTER_BY_COMPARED_KEY, *KEDA_KEYS], cutoff=0.5)
    hint = hint or f"; there is: {', '.join(GETTER_BY_COMPARED_KEY)}"
    return f"{name!r} is not known{hint}"


GETTER_BY_COMPARED_KEY: Final[Mapping[str, Callable[[ScaledGroup], str]]] = {
    "bootstrapServers": lambda steered: steered.bootstrap,
    "consumerGroup": lambda steered: steered.group,
    "topic": lambda steered: ",".join(steered.topics),
    "offsetResetPolicy": lambda steered: steered.offset_reset,
}


def _split_comma_list(text: str) -> set[str]:
    """Return the parts of a list with commas: their order does not matter."""
    return {part.strip() for part in text.split(",")}
