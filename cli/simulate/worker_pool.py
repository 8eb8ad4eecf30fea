"""The simulations of one call, on one core or several.

A job depends on its inputs alone, so neither order nor core changes a figure.
"""

import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import Final, NamedTuple

from trimtab.assignor.analysis.simulation import (
    SimulationRun,
    SimulationSetup,
    parse_contender,
    run_simulation,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.cli.errors import SimulationWorkerLostError

# ticks x partitions x jobs; below it starting processes takes longer than the simulations
MIN_PARALLEL_EFFORT: Final = 1_000_000


class SimulationJob(NamedTuple):
    """One simulation; `stream` is an index."""

    stream: int
    name: str
    headroom: float


def run_jobs(
    jobs: Sequence[SimulationJob],
    streams: Sequence[WriteRateStream],
    setup: SimulationSetup,
    cores: int | None,
    on_done: Callable[[SimulationJob], None],
) -> dict[SimulationJob, SimulationRun]:
    """Return the result of each job, in their order. Raises SimulationWorkerLostError."""
    effort = sum(streams[job.stream].rates.size for job in jobs)
    if cores is None:  # as many as pay off
        # not os.cpu_count(): a container may have fewer
        cores = len(os.sched_getaffinity(0)) if effort > MIN_PARALLEL_EFFORT else 1
    cores = min(cores, len(jobs))
    inline = ((job, _run(job, streams, setup)) for job in jobs)
    results: dict[SimulationJob, SimulationRun] = {}
    for job, run in inline if cores <= 1 else _run_in_pool(jobs, streams, setup, cores):
        results[job] = run
        on_done(job)
    return {job: results[job] for job in jobs}  # a pool completes jobs in any order


def _run_in_pool(
    jobs: Sequence[SimulationJob], streams: Sequence[WriteRateStream], setup: SimulationSetup, cores: int
) -> Iterator[tuple[SimulationJob, SimulationRun]]:
    pool = ProcessPoolExecutor(
        cores,
        get_context("spawn"),  # fork would copy the locks of numpy's threads
        initializer=_init_worker,
        initargs=(tuple(streams), setup),  # sent once for each worker, not for each job
    )
    try:
        with _block_interrupts():
            futures = {pool.submit(_run_in_worker, job): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:  # mostly the kernel's OOM killer
        raise SimulationWorkerLostError(cores) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _block_interrupts() -> Generator[None]:
    # Ctrl-C reaches the whole process group; workers inherit the mask, so only the parent handles it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _WorkerInputs:
    streams: Sequence[WriteRateStream] = ()
    setup: SimulationSetup = SimulationSetup()


def _init_worker(streams: Sequence[WriteRateStream], setup: SimulationSetup) -> None:
    _WorkerInputs.streams = streams
    _WorkerInputs.setup = setup


def _run_in_worker(job: SimulationJob) -> SimulationRun:
    return _run(job, _WorkerInputs.streams, _WorkerInputs.setup)


def _run(job: SimulationJob, streams: Sequence[WriteRateStream], setup: SimulationSetup) -> SimulationRun:
    stream = streams[job.stream]
    return run_simulation(parse_contender(job.name), stream, replace(setup, headroom=job.headroom))
