"""Assignment problems of bench_assign: the group before a member joins or leaves, as encoded bytes.

Before the change, all members have nearly the same number of partitions and nearly the same load, so
no assignor needs to move anything but for the join or leave. Write rates fall as
1 / (rank + P / 100): the largest partition has about 22 times the mean rate, less than a consumer's
share.

A file contains one problem, big-endian, for Java's DataInputStream:

    int T, T x (UTF topic, int partitions)
    int M, M x (UTF id, bytes x 3: subscription for cooperative peers, eager peers, trimtab)
    P doubles (bytes/s), P ints (previous owner, -1: none)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from struct import pack, unpack

import numpy as np

from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.rebalance.consumer_protocol import encode_assignments
from trimtab.assignor.rebalance.user_data import MemberUserData

GENERATION = 5
DECISION = "an earlier one"
SCENES = ("fresh", "join", "leave")


@dataclass(frozen=True, eq=False)
class Problem:
    partition_index: PartitionIndex
    ids: tuple[str, ...]
    rate: FloatArray  # (P,) bytes/s
    owner: IntArray  # (P,) previous; UNASSIGNED if there is none or it has left


@dataclass(frozen=True, eq=False)
class Subscriptions:
    """Subscriptions as bytes, by member id."""

    cooperative: dict[str, bytes]  # owned partitions and generation in their fields
    eager: dict[str, bytes]  # both in the user data, as in Kafka's StickyAssignor
    trimtab: dict[str, bytes]


def make_problem(partitions: int, members: int, topics: int, scene: str) -> Problem:
    rng = np.random.default_rng(partitions + members)
    each = np.arange(partitions // topics, dtype=np.int32)
    partition_index = PartitionIndex.from_numbers({f"topic-{t:03d}": each for t in range(topics)})
    rank = np.arange(len(partition_index))
    by_rank = 1e7 / (rank + len(rank) / 100)
    order = rng.permutation(len(rank))
    rate = np.empty(len(rank))
    rate[order] = by_rank
    before = {"fresh": 0, "join": members - 1, "leave": members + 1}[scene]
    owner = np.full(len(rank), UNASSIGNED, dtype=np.int32)
    if before:
        lap, seat = np.divmod(rank, before)
        owner[order] = np.where(
            lap % 2, before - 1 - seat, seat
        )  # alternating direction, which balances the load
    owner[owner >= members] = UNASSIGNED  # the member that left has the last index
    ids = tuple(f"consumer-{m:05d}-{rng.bytes(8).hex()}" for m in range(members))
    return Problem(partition_index, ids, rate, owner)


def encode_subscriptions(problem: Problem) -> Subscriptions:
    """Return the subscriptions of all members, with their previous partitions."""
    owned = _list_owned_partitions(problem.partition_index, problem.owner, len(problem.ids))
    newcomer = np.bincount(problem.owner[problem.owner != UNASSIGNED], minlength=len(problem.ids)) == 0
    cooperative: dict[str, bytes] = {}
    eager: dict[str, bytes] = {}
    trimtab: dict[str, bytes] = {}
    for name, owned_bytes, new in zip(problem.ids, owned, newcomer.tolist(), strict=True):
        generation = -1 if new else GENERATION
        user_data_bytes = MemberUserData(
            instance=name[:14], decision_fingerprint="" if new else DECISION
        ).encode()
        previous = owned_bytes + pack(">i", generation)
        cooperative[name] = encode_subscription(problem, b"", owned_bytes, generation)
        eager[name] = encode_subscription(problem, b"" if new else previous, pack(">i", 0), -1)
        trimtab[name] = encode_subscription(problem, user_data_bytes, owned_bytes, generation)
    return Subscriptions(cooperative, eager, trimtab)


def encode_subscription(problem: Problem, user_data: bytes, owned: bytes, generation: int) -> bytes:
    """Return a ConsumerProtocolSubscription v3 to all topics."""
    topics = b"".join(map(_encode_utf, problem.partition_index.topics))
    data = pack(">i", len(user_data)) + user_data if user_data else pack(">i", -1)
    head = pack(">hi", 3, len(problem.partition_index.topics)) + topics
    return head + data + owned + pack(">ih", generation, -1)


def _list_owned_partitions(partition_index: PartitionIndex, owner: IntArray, members: int) -> list[bytes]:
    """Return [topic, [partition]] of each member: an assignment less its version and user data."""
    return [a[2:-4] for a in encode_assignments(partition_index, owner, [b""] * members)]


def write_problem(path: Path, problem: Problem) -> None:
    subscriptions = encode_subscriptions(problem)
    sizes = np.diff(problem.partition_index.start).tolist()
    with path.open("wb") as file:
        file.write(pack(">i", len(problem.partition_index.topics)))
        for topic, size in zip(problem.partition_index.topics, sizes, strict=True):
            file.write(_encode_utf(topic) + pack(">i", size))
        file.write(pack(">i", len(problem.ids)))
        for name in problem.ids:
            file.write(_encode_utf(name))
            for data in (
                subscriptions.cooperative[name],
                subscriptions.eager[name],
                subscriptions.trimtab[name],
            ):
                file.write(pack(">i", len(data)) + data)
        file.write(problem.rate.astype(">f8").tobytes() + problem.owner.astype(">i4").tobytes())


def read_problem(path: Path) -> tuple[Problem, Subscriptions]:
    file = BytesIO(path.read_bytes())
    topics = {_read_utf(file): _read_int(file) for _ in range(_read_int(file))}
    each = {topic: np.arange(size, dtype=np.int32) for topic, size in topics.items()}
    partition_index = PartitionIndex.from_numbers(each)
    subscriptions = Subscriptions({}, {}, {})
    for _ in range(_read_int(file)):
        name = _read_utf(file)
        for kind in (subscriptions.cooperative, subscriptions.eager, subscriptions.trimtab):
            kind[name] = file.read(_read_int(file))
    rate = np.frombuffer(file.read(8 * len(partition_index)), dtype=">f8").astype(np.float64)
    owner = np.frombuffer(file.read(4 * len(partition_index)), dtype=">i4").astype(np.int32)
    return Problem(partition_index, tuple(subscriptions.trimtab), rate, owner), subscriptions


def measure_quality(problem: Problem, after: IntArray) -> dict[str, float]:
    """Return the moves between remaining members and the imbalance of load and counts."""
    load = np.bincount(after, problem.rate, minlength=len(problem.ids))
    count = np.bincount(after, minlength=len(problem.ids))
    return {
        "moves": int(((problem.owner != UNASSIGNED) & (problem.owner != after)).sum()),
        "max_load_over_mean": round(float(load.max() / load.mean()), 3),
        "max_count_over_mean": round(float(count.max() / count.mean()), 3),
    }


def write_scenes(folder: Path, size: tuple[int, int], topics: int) -> Iterator[tuple[str, Path]]:
    """Write the three problems of a size; yield each with its path."""
    for scene in SCENES:
        path = folder / f"{size[0]}x{size[1]}-{scene}.bin"
        write_problem(path, make_problem(*size, topics, scene))
        yield scene, path


def _encode_utf(text: str) -> bytes:
    data = text.encode()
    return pack(">h", len(data)) + data


def _read_int(file: BytesIO) -> int:
    return int(unpack(">i", file.read(4))[0])


def _read_utf(file: BytesIO) -> str:
    return file.read(unpack(">h", file.read(2))[0]).decode()
