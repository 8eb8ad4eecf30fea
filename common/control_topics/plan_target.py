"""Target of a plan: the consumer of each partition, once the plan is carried out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Self

from trimtab.common.control_topics.number_ranges import Count, Int32, NumberRange
from trimtab.common.units import format_count

MAX_PLACES: Final = 100_000
MAX_TOPIC_PARTITIONS: Final = 1_000_000
NOT_PLACED: Final = 0  # consumer number of a partition that the target leaves open


@dataclass(frozen=True, slots=True)
class PlanTarget:
    """Placement on C named consumers, numbered from 1, and on places, numbered from C + 1.

    Raises ValueError for a number without a consumer, and for a name that is empty or repeated.
    """

    revision: Count  # higher with each other target of the group, also within an epoch
    consumers: tuple[str, ...]  # instance names
    places: Annotated[int, NumberRange(le=MAX_PLACES)] = 0  # slots of consumers that have yet to join
    # by topic: the consumer number of partition 0, 1, …; NOT_PLACED where it is open
    partitions: Mapping[str, tuple[Int32, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def __post_init__(self) -> None:
        if not all(self.consumers) or len(set(self.consumers)) < len(self.consumers):
            raise ValueError("a consumer's name is empty or repeated")
        for topic, numbers in self.partitions.items():
            if len(numbers) > MAX_TOPIC_PARTITIONS:
                raise ValueError(f"topic {topic[:80]!r} has {format_count(len(numbers), 'partition')}")
            if max(numbers, default=NOT_PLACED) > self.size:
                raise ValueError(f"topic {topic[:80]!r} names consumer {max(numbers)} of {self.size}")

    @property
    def size(self) -> int:
        """Number of consumers and places."""
        return len(self.consumers) + self.places

    @classmethod
    def from_assignment(
        cls,
        revision: int,
        consumers: Sequence[str],
        places: int,
        assignment: Mapping[str, Sequence[tuple[str, int]]],
    ) -> Self:
        """Build from (topic, partition) pairs by consumer name; the places are called "+1", "+2" and so on.

        Raises KeyError for another name.
        """
        names = sorted(consumers)
        number = {f"+{place + 1}": len(names) + place + 1 for place in range(places)}
        number |= {name: i + 1 for i, name in enumerate(names)}
        found: dict[str, dict[int, int]] = {}
        for name, partitions in assignment.items():
            for topic, partition in partitions:
                found.setdefault(topic, {})[partition] = number[name]
        by_topic = {
            topic: tuple(of_topic.get(n, NOT_PLACED) for n in range(max(of_topic) + 1))
            for topic, of_topic in sorted(found.items())
        }
        return cls(revision, tuple(names), places, by_topic)
