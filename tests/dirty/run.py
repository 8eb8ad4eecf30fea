"""What the cases share."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class DirtyRun:
    """A broker, a folder, and how long a load is steady."""

    bootstrap: str
    folder: Path
    seconds: float

    def create_topic(self, partitions: int) -> str:
        """Create a topic with a unique name."""
        name = f"dirty-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        return name


def compute_p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return round(sorted(values)[int(0.95 * len(values))], 4)
