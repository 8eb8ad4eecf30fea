"""2 % of the records 50 kB, the others 300 B: 260 kB/s over 4 partitions, for consumers of 100 kB/s each."""

import re
from itertools import pairwise
from threading import Event
from time import monotonic

from sidecar_bench import SidecarBench

from dirty.run import DirtyRun, Figures, compute_p95
from dirty.topics import MEAN_SIZE, Sized

BYTES_PER_S = 260_000.0
WINDOW_S = 30.0
SETTLING_S = 150.0  # consumers start, and read what was written before
OVERSIZED = "split the key"


def measure_sizes(run: DirtyRun) -> Figures:
    """Return figures of the worse of plain and compressed records."""
    found = [_measure(run, compression) for compression in ("none", "zstd")]
    return {name: max(figures[name] for figures in found) for name in found[0]}


def _measure(run: DirtyRun, compression: str) -> Figures:
    topic = run.create_topic(4)
    more = {"interval": "10 s", "window": f"{WINDOW_S:g} s", "cooldown": "30 s", "max": 6}
    folder = run.folder / topic
    folder.mkdir()
    bench = SidecarBench(run.bootstrap, f"group-of-{topic}", topic, folder, **more)
    producer = Sized(run.bootstrap, topic, 4, BYTES_PER_S / MEAN_SIZE, compression=compression)
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
        told = sum(_find_figures(metrics, "trimtab_write_rate_bytes_per_second"))
        errors.append(abs(told / producer.get_written_rate(now - 2 * WINDOW_S, now) - 1))
        oversized = oversized or OVERSIZED in bench.page("/decisions")
        if elapsed > SETTLING_S:
            desired += _find_figures(metrics, "trimtab_replicas_desired")
    scalings = sum(a != b for a, b in pairwise(desired))
    return {
        "rate_error_p95": compute_p95(errors),
        "false_oversized": int(oversized),
        "scalings_at_steady_load": scalings,
    }


def _find_figures(metrics: str, name: str) -> list[float]:
    return [float(figure) for figure in re.findall(rf"^{name}{{.*}} (\S+)$", metrics, re.MULTILINE)]
