"""Sizes from the growth of logs and from sampled batches, on simulated logs of heavy-tailed records."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from dirty.topics import draw_mixed, draw_pareto

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.record_sizes import (
    LogReading,
    RecordSize,
    RecordSizes,
    SampledBatch,
    SizeStatus,
)

P = TopicPartition("t", 0)
STEP, WINDOW = 10.0, 30.0
Draw = Callable[[random.Random], int]


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - of a test


def uncompressed(records: list[int]) -> int:
    return 61 + sum(size + 8 for size in records)


def mixed_compression(records: list[int]) -> int:
    """Return the size on disk if small records are text, and large ones images."""
    return 61 + sum(size if size > 10_000 else size // 5 + 8 for size in records)


@dataclass
class SimulatedLog:
    """A partition that gets batches of records, ten at a time; a sample reads 64 kB of the last interval."""

    draw: Draw
    compress: Callable[[list[int]], int] = uncompressed
    generator: random.Random = field(default_factory=lambda: seeded(1))
    sizes: RecordSizes = field(default_factory=lambda: RecordSizes(WINDOW))
    history: list[tuple[float, int, int]] = field(default_factory=list)  # time, offsets, bytes
    end = size = read = 0
    now = 0.0

    def write(self, count: int, *, with_growth: bool = True, is_sampled: bool = True) -> None:
        batches: list[SampledBatch] = []
        for _ in range(count // 10):
            records = [self.draw(self.generator) for _ in range(10)]
            on_disk = self.compress(records)
            batches.append(SampledBatch(10, on_disk, 10, sum(records)))
        self.end += count
        self.size += sum(b.log_bytes for b in batches)
        self.read += sum(b.bytes for b in batches)
        self.now += STEP
        self.history.append((self.now, self.end, self.read))
        if with_growth:
            self.sizes = self.sizes.add_log_sizes(
                self.now, {P: LogReading(self.now, 1, 0, self.end, self.size)}
            )
        if is_sampled:
            start = self.generator.randrange(len(batches))
            total, sample = 0, list[SampledBatch]()
            for batch in batches[start:]:
                if total < 65_536:
                    sample.append(batch)
                total += batch.log_bytes
            self.sizes = self.sizes.add_samples({P: sample})

    def get_size(self) -> RecordSize:
        return self.sizes.estimate_sizes([P])[P]

    def get_true_mean(self, seconds: float = WINDOW) -> float:
        since = [h for h in self.history if h[0] > self.now - seconds - STEP]
        return (since[-1][2] - since[0][2]) / (since[-1][1] - since[0][1])


@pytest.mark.parametrize("compress", [uncompressed, mixed_compression])
@pytest.mark.parametrize("draw", [draw_mixed, draw_pareto])
def test_heavy_tails_are_within_15_percent(draw: Draw, compress: Callable[[list[int]], int]) -> None:
    """What was written in the last window: at p95 within 15 % after two windows, often of 20 topics."""
    errors: list[float] = []
    for seed in range(20):
        log = SimulatedLog(draw, compress, seeded(seed))
        for turn in range(60):
            log.write(2_000, is_sampled=turn < 6 or turn % 12 == 0)
            if log.now > 2 * WINDOW:
                errors.append(abs(log.get_size().bytes / log.get_true_mean() - 1))
    assert sorted(errors)[int(0.95 * len(errors))] < 0.15


def test_the_error_is_told() -> None:
    """The long mean is within twice the told error nearly always, and equal records have none."""
    misses = 0
    for seed in range(20):
        log = SimulatedLog(draw_mixed, generator=seeded(seed))
        for turn in range(30):
            log.write(2_000, is_sampled=turn < 6)
        size = log.get_size()
        misses += abs(size.bytes / 1294 - 1) > 2 * size.error + 0.02
    assert misses <= 2
    log = SimulatedLog(lambda _: 500)
    for _ in range(30):
        log.write(2_000)
    assert log.get_size() == pytest.approx((500, 1, 0), rel=0.01, abs=0.01)


def test_a_change_of_sizes_is_followed_in_a_window() -> None:
    """Twice as large records from now on: after a window the past no longer counts."""
    for draw in (lambda r: r.randrange(400, 600), draw_mixed):
        log = SimulatedLog(draw)
        for _ in range(30):
            log.write(2_000)
        log.draw = lambda r, d=draw: 3 * d(r)  # type: ignore[misc]
        for _ in range(4):
            log.write(2_000)
        assert log.get_size().bytes == pytest.approx(log.get_true_mean(), rel=0.15)


def compressed(records: list[int]) -> int:
    return 61 + sum(records) // 3


@pytest.mark.parametrize("draw", [draw_mixed, draw_pareto])
@pytest.mark.parametrize(("before", "after"), [(uncompressed, compressed), (compressed, uncompressed)])
def test_another_compression_is_followed_with_the_next_samples(
    draw: Draw, before: Callable[[list[int]], int], after: Callable[[list[int]], int]
) -> None:
    """A producer that compresses from now on writes as much as before: what older batches held is past."""
    errors: list[float] = []
    for seed in range(20):
        log = SimulatedLog(draw, before, seeded(seed))
        for turn in range(36):
            log.compress = before if turn < 18 else after
            log.write(2_000, is_sampled=turn < 6 or turn % 6 == 0)
            if turn > 18 + WINDOW / STEP:
                errors.append(abs(log.get_size().bytes / log.get_true_mean() - 1))
    assert sorted(errors)[int(0.95 * len(errors))] < 0.15


def test_retention_and_a_new_leader_do_not_count() -> None:
    """An interval in which a log's beginning or leader changed tells nothing of its growth."""
    log = SimulatedLog(lambda _: 500)
    for _ in range(6):
        log.write(1_000)
    before = log.get_size()
    retained = LogReading(log.now + 10, 1, 3_000, log.end + 1_000, log.size - 1_000_000)
    moved = LogReading(log.now + 20, 2, 3_000, log.end + 2_000, log.size * 7)
    for reading in (retained, moved):
        log.sizes = log.sizes.add_log_sizes(reading.time, {P: reading})
    assert log.get_size().bytes == pytest.approx(before.bytes, rel=0.01)


def test_without_growth_samples_tell_the_size_and_their_error() -> None:
    """Without the right to describe the cluster."""
    log = SimulatedLog(draw_mixed)
    for _ in range(60):
        log.write(2_000, with_growth=False)
    size = log.get_size()
    assert abs(size.bytes / 1294 - 1) < 3 * size.error
    assert 0.02 < size.error < 0.3


def test_logs_that_may_no_longer_be_measured_are_forgotten() -> None:
    """Samples tell a change of sizes that the last growth, of five minutes ago, does not."""
    log = SimulatedLog(lambda _: 500)
    for _ in range(10):
        log.write(1_000)
    log.draw = lambda _: 5_000
    for _ in range(40):
        log.sizes = log.sizes.add_log_sizes(log.now + STEP, {})
        log.write(1_000, with_growth=False)
    assert log.get_size().bytes == pytest.approx(5_000, rel=0.1)


def test_how_sizes_are_known_is_described() -> None:
    """The error of the sum of all rates: those of the partitions are independent."""
    log = SimulatedLog(lambda _: 500)
    log.write(1_000)
    other = TopicPartition("t", 1)
    loads = {p: PartitionLoad(100.0, error_bytes_per_s=error) for p, error in ((P, 3.0), (other, 4.0))}
    assert log.sizes.describe(loads) == SizeStatus(1, 1, 5.0 / 200.0)
    assert log.sizes.describe({P: PartitionLoad()}) is None


def test_records_are_counted_without_markers() -> None:
    """One record a transaction: half of the offsets, all of the bytes."""
    sizes = RecordSizes(WINDOW).add_samples(
        {P: [SampledBatch(1, 369, 1, 300), SampledBatch(1, 78, 0, 0)] * 40}
    )
    for turn in range(5):
        sizes = sizes.add_log_sizes(
            STEP * turn, {P: LogReading(STEP * turn, 1, 0, 200 * turn, 100 * turn * (369 + 78))}
        )
    found = sizes.estimate_sizes([P])[P]
    assert (found.bytes, found.records) == (pytest.approx(150.0), pytest.approx(0.5))


def test_an_idle_log_is_known_by_what_it_holds() -> None:
    """Before anything is written, the log's size / its offsets."""
    sizes = RecordSizes(on_disk=True).add_log_sizes(0, {P: LogReading(0, 1, 100, 200, 5_000)})
    assert sizes.estimate_sizes([P]) == {P: RecordSize(50.0)}


def test_deleted_partitions_are_forgotten() -> None:
    """Growth and samples, both."""
    log = SimulatedLog(lambda _: 500)
    log.write(1_000)
    kept = log.sizes.forget_missing([P])
    gone = log.sizes.forget_missing([])
    assert (kept is log.sizes, set(gone.growths), set(gone.samples)) == (True, set(), set())
