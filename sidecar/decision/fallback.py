"""The replica count to recommend while no write rate is known, as KEDA's `fallback`."""

from dataclasses import dataclass
from enum import StrEnum


class FallbackBehavior(StrEnum):
    """Replica count to recommend when measuring fails."""

    CURRENT = "current"
    STATIC = "static"
    CURRENT_IF_HIGHER = "current-if-higher"


@dataclass(frozen=True, slots=True)
class FallbackPolicy:
    """Applies once no write rate was known in `failure_threshold` iterations in a row."""

    behavior: FallbackBehavior = FallbackBehavior.CURRENT
    replicas: int = 0
    failure_threshold: int = 3

    def resolve_replicas(self, current: int) -> int:
        """Return the recommended count while `current` replicas are planned."""
        match self.behavior:
            case FallbackBehavior.CURRENT:
                return current
            case FallbackBehavior.STATIC:
                return self.replicas
            case FallbackBehavior.CURRENT_IF_HIGHER:
                return max(current, self.replicas)
