"""Producers of what real topics hold: sizes with a heavy tail, transactions, aborted and open ones."""

import random
from collections.abc import Callable
from time import monotonic

from support.steady import Background

LARGE, SMALL, LARGE_SHARE = 50_000, 300, 0.02
MEAN_SIZE = LARGE * LARGE_SHARE + SMALL * (1 - LARGE_SHARE)

PARETO_INDEX, PARETO_LEAST = 1.2, 200
PARETO_MEAN_SIZE = PARETO_LEAST * PARETO_INDEX / (PARETO_INDEX - 1)  # about: sizes end at the broker's limit


def draw_mixed(draw: random.Random) -> int:
    """Return a size of which 2 % are 50 kB and the others 300 B."""
    return LARGE if draw.random() < LARGE_SHARE else SMALL


def draw_pareto(draw: random.Random, most: int = 900_000) -> int:
    """Return a size of a Pareto distribution with infinite variance, cut where brokers refuse records."""
    return min(most, int(PARETO_LEAST * draw.paretovariate(PARETO_INDEX)))


class Sized(Background):
    """Writes records of drawn sizes at a steady number a second, to random partitions."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        rate: float,
        draw: Callable[[random.Random], int] = draw_mixed,
        compression: str = "none",
    ) -> None:
        self.history: list[tuple[float, int]] = []  # time and bytes written until then
        self._partitions = partitions
        self._rate = rate
        self._draw = draw
        self._random = random.Random(4711)  # noqa: S311 - of a test
        # text of words that repeat, in no order that does: it compresses to a third
        words = [f"{self._random.randrange(10**6):x}" for _ in range(2_000)]
        self._text = " ".join(self._random.choices(words, k=300_000)).encode()
        super().__init__(bootstrap, topic, {"compression.type": compression})

    def get_written_rate(self, since: float, until: float) -> float:
        """Return the bytes/s that were written between two monotonic times."""
        spans = [(at, size) for at, size in list(self.history) if since <= at <= until]
        return (spans[-1][1] - spans[0][1]) / (spans[-1][0] - spans[0][0])

    def _run(self) -> None:
        begun, count, total = monotonic(), 0, 0
        while not self._stop.wait(0.02):
            due = int((monotonic() - begun) * self._rate)
            for _ in range(due - count):
                size = self._draw(self._random)
                start = self._random.randrange(len(self._text) - size)
                number = self._random.randrange(self._partitions)
                self._producer.produce(self._topic, self._text[start : start + size], partition=number)
                total += size
            count = due
            self.history.append((monotonic(), total))
            self._producer.poll(0)


class Transactional(Background):
    """Writes transactions of one record each to partition 0, at a steady rate; every nth is aborted."""

    def __init__(self, bootstrap: str, topic: str, rate: float, aborted_every: int = 0) -> None:
        self.committed: list[float] = []  # monotonic times
        self._rate = rate
        self._aborted_every = aborted_every
        super().__init__(bootstrap, topic, {"transactional.id": f"writer-of-{topic}", "linger.ms": 0})

    def get_committed_rate(self, since: float, until: float) -> float:
        """Return the committed records/s between two monotonic times."""
        return sum(since <= at <= until for at in list(self.committed)) / (until - since)

    def _run(self) -> None:
        self._producer.init_transactions()
        begun, count = monotonic(), 0
        while not self._stop.wait(max(0.0, begun + count / self._rate - monotonic())):
            count += 1
            self._producer.begin_transaction()
            self._producer.produce(self._topic, b"x" * SMALL, partition=0)
            if self._aborted_every and count % self._aborted_every == 0:
                self._producer.flush()
                self._producer.abort_transaction()
            else:
                self._producer.commit_transaction()
                self.committed.append(monotonic())
