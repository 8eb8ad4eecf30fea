"""Names of consumers that share a replica, such as several threads of a pod. Pure.

1. A replica that runs one consumer shares its name with it.
2. Several consumers of a replica are called "orders-7d9f/1", "orders-7d9f/2" and so on: as their client ids
   say, or numbered in order if they all have the replica's name.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import count


def get_replica(consumer: str) -> str:
    """Return the replica of a consumer's name: the part before the last slash."""
    return consumer.rpartition("/")[0] or consumer


def number_shared_names(names: Iterable[str]) -> list[str]:
    """Return the names, those that occur more than once with the number of their occurrence."""
    listed = list(names)
    times = Counter(listed)
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(1))
    return [f"{name}/{next(numbers[name])}" if name and times[name] > 1 else name for name in listed]


def list_consumer_names(replica: str, joined: Iterable[str], size: int) -> tuple[str, ...]:
    """Return the names of a replica's joined consumers, and of the others up to `size`."""
    names = sorted(joined)
    free = (name for n in count(1) if (name := f"{replica}/{n}") not in names)
    return (*names, *(next(free) for _ in range(size - len(names))))
