"""The problems of bench_assign: who owned what before one joins or leaves, in bytes as sent.

Owners are dealt so that all have nearly as many partitions and nearly the same load: at rest by
any peer's measure. So what a join or a leave costs is its own doing. Write speeds fall as
1 / (rank + P / 100): the largest partition writes about 22 times the mean, less than a consumer's
share.

A file holds one problem, big-endian, so that Java's DataInputStream reads it:

    int T, T x (UTF topic, int partitions)
    int M, M x (UTF id, bytes x 3: subscription for cooperative peers, eager peers, trimtab)
    P doubles (bytes/s), P ints (owner before, -1: nobody)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from struct import pack, unpack

import numpy as np

from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray
from trimtab.assignor.partition_index import PartitionIndex
from trimtab.assignor.rebalance.consumer_protocol import encode_assignments
from trimtab.assignor.rebalance.user_data import MemberUserData

GENERATION = 5
DECISION = "an earlier one"
SCENES = ("fresh", "join", "leave")


@dataclass(frozen=True, eq=False)
class Problem:
    universe: PartitionIndex
    ids: tuple[str, ...]
    speed: FloatArray  # (P,) bytes/s
    owner: IntArray  # (P,) before; NOBODY where the owner left, or there was none


@dataclass(frozen=True, eq=False)
class Sent:
    """Subscriptions as bytes, by member id."""

    cooperative: dict[str, bytes]  # owned partitions and generation in their fields
    eager: dict[str, bytes]  # both in the user data, as Kafka's StickyAssignor has them
    trimtab: dict[str, bytes]


def problem(partitions: int, members: int, topics: int, scene: str) -> Problem:
    rng = np.random.default_rng(partitions + members)
    each = np.arange(partitions // topics, dtype=np.int32)
    universe = PartitionIndex.from_numbers({f"topic-{t:03d}": each for t in range(topics)})
    rank = np.arange(len(universe))
    by_rank = 1e7 / (rank + len(rank) / 100)
    order = rng.permutation(len(rank))
    speed = np.empty(len(rank))
    speed[order] = by_rank
    before = {"fresh": 0, "join": members - 1, "leave": members + 1}[scene]
    owner = np.full(len(rank), UNASSIGNED, dtype=np.int32)
    if before:
        lap, seat = np.divmod(rank, before)
        owner[order] = np.where(lap % 2, before - 1 - seat, seat)  # there and back again
    owner[owner >= members] = UNASSIGNED  # who left is the last one
    ids = tuple(f"consumer-{m:05d}-{rng.bytes(8).hex()}" for m in range(members))
    return Problem(universe, ids, speed, owner)


def sent(given: Problem) -> Sent:
    """Return what every member sends, having read what it owned before."""
    owned = _owned(given.universe, given.owner, len(given.ids))
    newcomer = np.bincount(given.owner[given.owner != UNASSIGNED], minlength=len(given.ids)) == 0
    cooperative: dict[str, bytes] = {}
    eager: dict[str, bytes] = {}
    trimtab: dict[str, bytes] = {}
    for name, holds, new in zip(given.ids, owned, newcomer.tolist(), strict=True):
        generation = -1 if new else GENERATION
        said = MemberUserData(instance=name[:14], decision_fingerprint="" if new else DECISION).encode()
        previous = holds + pack(">i", generation)
        cooperative[name] = subscription(given, b"", holds, generation)
        eager[name] = subscription(given, b"" if new else previous, pack(">i", 0), -1)
        trimtab[name] = subscription(given, said, holds, generation)
    return Sent(cooperative, eager, trimtab)


def subscription(given: Problem, user_data: bytes, owned: bytes, generation: int) -> bytes:
    """Return a ConsumerProtocolSubscription v3 to all topics."""
    topics = b"".join(map(_utf, given.universe.topics))
    data = pack(">i", len(user_data)) + user_data if user_data else pack(">i", -1)
    head = pack(">hi", 3, len(given.universe.topics)) + topics
    return head + data + owned + pack(">ih", generation, -1)


def _owned(universe: PartitionIndex, owner: IntArray, members: int) -> list[bytes]:
    """Return [topic, [partition]] of each member: an assignment less its version and user data."""
    return [a[2:-4] for a in encode_assignments(universe, owner, [b""] * members)]


def write(path: Path, given: Problem) -> None:
    raw = sent(given)
    sizes = np.diff(given.universe.start).tolist()
    with path.open("wb") as file:
        file.write(pack(">i", len(given.universe.topics)))
        for topic, size in zip(given.universe.topics, sizes, strict=True):
            file.write(_utf(topic) + pack(">i", size))
        file.write(pack(">i", len(given.ids)))
        for name in given.ids:
            file.write(_utf(name))
            for data in (raw.cooperative[name], raw.eager[name], raw.trimtab[name]):
                file.write(pack(">i", len(data)) + data)
        file.write(given.speed.astype(">f8").tobytes() + given.owner.astype(">i4").tobytes())


def read(path: Path) -> tuple[Problem, Sent]:
    file = BytesIO(path.read_bytes())
    topics = {_read_utf(file): _read_int(file) for _ in range(_read_int(file))}
    each = {topic: np.arange(size, dtype=np.int32) for topic, size in topics.items()}
    universe = PartitionIndex.from_numbers(each)
    raw = Sent({}, {}, {})
    for _ in range(_read_int(file)):
        name = _read_utf(file)
        for kind in (raw.cooperative, raw.eager, raw.trimtab):
            kind[name] = file.read(_read_int(file))
    speed = np.frombuffer(file.read(8 * len(universe)), dtype=">f8").astype(np.float64)
    owner = np.frombuffer(file.read(4 * len(universe)), dtype=">i4").astype(np.int32)
    return Problem(universe, tuple(raw.trimtab), speed, owner), raw


def quality(given: Problem, after: IntArray) -> dict[str, float]:
    """Return moves between living members, and how uneven load and counts came out."""
    load = np.bincount(after, given.speed, minlength=len(given.ids))
    count = np.bincount(after, minlength=len(given.ids))
    return {
        "moves": int(((given.owner != UNASSIGNED) & (given.owner != after)).sum()),
        "max_load_over_mean": round(float(load.max() / load.mean()), 3),
        "max_count_over_mean": round(float(count.max() / count.mean()), 3),
    }


def scenes(folder: Path, size: tuple[int, int], topics: int) -> Iterator[tuple[str, Path]]:
    """Write the three problems of a size."""
    for scene in SCENES:
        path = folder / f"{size[0]}x{size[1]}-{scene}.bin"
        write(path, problem(*size, topics, scene))
        yield scene, path


def _utf(text: str) -> bytes:
    data = text.encode()
    return pack(">h", len(data)) + data


def _read_int(file: BytesIO) -> int:
    return int(unpack(">i", file.read(4))[0])


def _read_utf(file: BytesIO) -> str:
    return file.read(unpack(">h", file.read(2))[0]).decode()
