"""Sizes with a heavy tail: 260 kB/s over 4 partitions, for consumers of 100 kB/s each."""

import random
from collections.abc import Callable
from threading import Event
from time import monotonic

from dirty.run import DirtyRun, Figures, compute_p95, count_changes, find_figures
from dirty.topics import MEAN_SIZE, PARETO_MEAN_SIZE, Sized, draw_mixed, draw_pareto
from support.sidecar_bench import SidecarBench

BYTES_PER_S = 260_000.0
WINDOW_S = 30.0
SETTLING_S = 150.0  # consumers start, and read what was written before
OVERSIZED = "PartitionOversized"


def measure_mixed_sizes(run: DirtyRun) -> Figures:
    """2 % of the records 50 kB, the others 300 B."""
    return _measure(run, "none", draw_mixed, MEAN_SIZE)


def measure_compressed_sizes(run: DirtyRun) -> Figures:
    """The same sizes, compressed."""
    return _measure(run, "zstd", draw_mixed, MEAN_SIZE)


def measure_pareto_sizes(run: DirtyRun) -> Figures:
    """Sizes of a Pareto distribution, whose variance is infinite."""
    return _measure(run, "none", draw_pareto, PARETO_MEAN_SIZE)


def _measure(run: DirtyRun, compression: str, draw: Callable[[random.Random], int], mean: float) -> Figures:
    topic = run.create_topic(4)
    more = {"interval": "10 s", "window": f"{WINDOW_S:g} s", "cooldown": "30 s", "max": 6}
    bench = SidecarBench(run.bootstrap, f"group-of-{topic}", topic, run.folder, **more)
    producer = Sized(run.bootstrap, topic, 4, BYTES_PER_S / mean, draw, compression=compression)
    try:
        bench.start("--stop-workers")
        return _watch(bench, producer, run.seconds)
    finally:
        bench.close()
        producer.stop()


def _watch(bench: SidecarBench, producer: Sized, seconds: float) -> Figures:
    pause, begun = Event(), monotonic()
    errors: list[float] = []
    desired: list[float] = []
    oversized = False
    while (elapsed := monotonic() - begun) < SETTLING_S + seconds:
        pause.wait(5.0)
        if elapsed < 2 * WINDOW_S:
            continue
        metrics, now = bench.page("/metrics"), monotonic()
        told = sum(find_figures(metrics, "trimtab_write_rate_bytes_per_second"))
        errors.append(abs(told / producer.get_written_rate(now - 2 * WINDOW_S, now) - 1))
        oversized = oversized or OVERSIZED in bench.page("/decisions")
        if elapsed > SETTLING_S:
            desired += find_figures(metrics, "trimtab_replicas_desired")
    return {
        "rate_error_p95": compute_p95(errors),
        "false_oversized": int(oversized),
        "scalings_at_steady_load": count_changes(desired),
    }
