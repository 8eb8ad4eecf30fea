"""Whether a trigger's metadata mean the group that this sidecar steers. Pure.

Names are those of KEDA's `kafka` and `apache-kafka` scalers where they mean the same; those that
mean nothing here, and those that nobody knows, are refused rather than ignored. What the sidecar
itself was not told (topics, where it takes those that the group reads) is not compared.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from trimtab.sidecar.errors import TriggerMismatch
from trimtab.sidecar.settings.settings import Settings

KEDAS: Final = frozenset({"scalerAddress", "enableTLS", "unsafeSsl"})
"""What KEDA itself reads: how to reach us."""

LAG: Final = frozenset(
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

CONNECTION: Final = frozenset({"awsRegion", "sasl", "saslTokenProvider", "tls", "version"})
"""How the kafka scaler reaches the brokers."""

FROM_ENV: Final = "FromEnv"
"""What a name ends with whose value KEDA takes from the workload's environment."""


@dataclass(frozen=True, slots=True)
class Steered:
    """What this sidecar steers; no topics: whatever the group reads."""

    bootstrap: str
    group: str
    topics: tuple[str, ...]
    offset_reset: str

    @classmethod
    def of(cls, settings: Settings) -> "Steered":
        """Return what the settings say."""
        reset = settings.offset_reset or "latest"
        return cls(settings.bootstrap, settings.group, settings.topics, reset)


def check(metadata: Mapping[str, str], steered: Steered) -> None:
    """Raise TriggerMismatch with everything that is wrong."""
    given = {name.removesuffix(FROM_ENV): value for name, value in metadata.items()}
    problems = [text for name in sorted(given) if (text := _problem(name, given[name], steered))]
    if problems:
        raise TriggerMismatch("; ".join(problems))


def _problem(name: str, value: str, steered: Steered) -> str:
    if name in KEDAS:
        return ""
    if name in COMPARED:
        ours = COMPARED[name](steered)
        same = not ours or _parts(value) == _parts(ours)
        return "" if same else f"{name} is {value!r}, but this sidecar has {ours!r}"
    if name in LAG:
        return f"{name} means nothing here: the count follows write speed and backlog; leave it out"
    if name in CONNECTION:
        return f"{name} means nothing here: the sidecar has a connection of its own; leave it out"
    near = get_close_matches(name, [*COMPARED, *KEDAS], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(COMPARED)}"
    return f"{name!r} is not known; {hint}"


COMPARED: Final[Mapping[str, Callable[[Steered], str]]] = {
    "bootstrapServers": lambda steered: steered.bootstrap,
    "consumerGroup": lambda steered: steered.group,
    "topic": lambda steered: ",".join(steered.topics),
    "offsetResetPolicy": lambda steered: steered.offset_reset,
}


def _parts(text: str) -> set[str]:
    """Return the parts of a list with commas: their order does not matter."""
    return {part.strip() for part in text.split(",")}
