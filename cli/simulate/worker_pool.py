"""The simulations of one call: (stream, contender, headroom) jobs, on as many cores as wanted.

A job depends on nothing but its inputs, so the order in which they are done, and on which core,
changes no figure. Workers are fresh processes that get the streams once.
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

MIN_PARALLEL_EFFORT: Final = 1_000_000
"""Work (ticks x partitions x jobs) above which worker processes pay off."""


class SimulationJob(NamedTuple):
    """One simulation."""

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
    """Return the result of each job; `on_done` is called after each.

    `cores` None uses all cores if that pays off. Raises SimulationWorkerLostError and the errors
    of a simulation.
    """
    effort = sum(streams[job.stream].rates.size for job in jobs)
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if effort > MIN_PARALLEL_EFFORT else 1
    cores = min(cores, len(jobs))
    made = _run_inline(jobs, streams, setup) if cores <= 1 else _run_in_pool(jobs, streams, setup, cores)
    results: dict[SimulationJob, SimulationRun] = {}
    for job, run in made:
        results[job] = run
        on_done(job)
    return {job: results[job] for job in jobs}


def _run_inline(
    jobs: Sequence[SimulationJob], streams: Sequence[WriteRateStream], setup: SimulationSetup
) -> Iterator[tuple[SimulationJob, SimulationRun]]:
    for job in jobs:
        yield job, _run_job(job, streams[job.stream], setup)


def _run_in_pool(
    jobs: Sequence[SimulationJob], streams: Sequence[WriteRateStream], setup: SimulationSetup, cores: int
) -> Iterator[tuple[SimulationJob, SimulationRun]]:
    pool = ProcessPoolExecutor(
        cores, get_context("spawn"), initializer=_init_worker, initargs=(tuple(streams), setup)
    )
    try:
        with _block_interrupts():
            futures = {pool.submit(_run_pooled_job, job): job for job in jobs}
        for answer in as_completed(futures):
            yield futures[answer], answer.result()
    except BrokenProcessPool as error:
        raise SimulationWorkerLostError(cores) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _block_interrupts() -> Generator[None]:
    """Start workers with SIGINT ignored: the parent stops them on Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _WorkerInputs:
    """Initial state of a worker process."""

    streams: Sequence[WriteRateStream] = ()
    setup: SimulationSetup = SimulationSetup()


def _init_worker(streams: Sequence[WriteRateStream], setup: SimulationSetup) -> None:
    _WorkerInputs.streams, _WorkerInputs.setup = streams, setup


def _run_pooled_job(job: SimulationJob) -> SimulationRun:
    return _run_job(job, _WorkerInputs.streams[job.stream], _WorkerInputs.setup)


def _run_job(job: SimulationJob, stream: WriteRateStream, setup: SimulationSetup) -> SimulationRun:
    return run_simulation(parse_contender(job.name), stream, replace(setup, headroom=job.headroom))
