"""What the cases share."""

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Event
from time import monotonic

from confluent_kafka.admin import AdminClient, NewTopic

from support.advised_group import Surfaces

Figures = dict[str, float]
PATIENCE_S = 200.0
LASTING_S = 2.0  # several iterations: what ends at once is no situation to be told


@dataclass(frozen=True, slots=True)
class DirtyRun:
    """A broker, a folder of the case's own, how long a load is steady, and what the surfaces have shown."""

    bootstrap: str
    folder: Path
    seconds: float
    driven: set[str] = field(default_factory=set[str])  # types of conditions
    silent: list[str] = field(default_factory=list[str])  # surfaces that said nothing of one, and when

    def create_topic(self, partitions: int = 8) -> str:
        """Create a topic with a unique name."""
        name = f"dirty-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        return name

    def drive(self, surfaces: Surfaces, *kinds: str) -> None:
        """Wait until the conditions last; then ask every surface for them."""
        found: dict[str, list[str]] | None = None

        def is_told() -> bool:
            nonlocal found
            found = surfaces.find_silent(kinds) if lasts(surfaces, kinds) else None
            return found is not None

        try:
            wait(is_told)
        except TimeoutError as error:
            held = ", ".join(surfaces.list_conditions())
            raise TimeoutError(f"{', '.join(kinds)}: {error}; {held or 'none'} held") from None
        self.driven.update(kinds)
        self.silent.extend(f"{name}: {kind}" for kind, names in (found or {}).items() for name in names)


def lasts(surfaces: Surfaces, kinds: Iterable[str]) -> bool:
    """Return whether all these conditions hold, and still do a moment later."""
    kinds = set(kinds)
    for pause in (LASTING_S, 0.0):
        if not kinds <= surfaces.list_conditions().keys():
            return False
        Event().wait(pause)
    return True


def wait(condition: Callable[[], object], what: str = "", timeout: float = PATIENCE_S) -> None:
    """Wait until a condition is true. Raises TimeoutError."""
    deadline = monotonic() + timeout
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:.0f} s: {what or 'it has not come'}")
        Event().wait(0.5)


def find_figures(metrics: str, name: str) -> list[float]:
    """Return the values of a metric."""
    return [float(figure) for figure in re.findall(rf"^{name}{{.*}} (\S+)$", metrics, re.MULTILINE)]


def count_changes(values: Sequence[object]) -> int:
    """Return how often a value differs from the one before."""
    return sum(a != b for a, b in pairwise(values))


def compute_p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return round(sorted(values)[int(0.95 * len(values))], 4)
