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
from typing import TYPE_CHECKING, Final, NamedTuple

from trimtab.assignor.analysis.simulation import (
    SimulationRun,
    SimulationSetup,
    parse_contender,
    run_simulation,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.cli.errors import SimulationWorkerLostError

if TYPE_CHECKING:
    from trimtab.sidecar.simulation.live_settings import LiveSettings

# ticks x partitions x jobs; below it starting processes takes longer than the simulations
MIN_PARALLEL_EFFORT: Final = 1_000_000
LIVE_EFFORT: Final = 20  # of a decision of the closed loop, in decisions of the replay


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
    *,
    live: "LiveSettings | None" = None,
) -> dict[SimulationJob, SimulationRun]:
    """Return the result of each job, in their order; of the closed loop with `live`.

    Raises SimulationWorkerLostError.
    """
    inputs = _Inputs(tuple(streams), setup, live)
    effort = sum(streams[job.stream].rates.size for job in jobs) * (1 if live is None else LIVE_EFFORT)
    if cores is None:  # as many as pay off
        # not os.cpu_count(): a container may have fewer
        cores = len(os.sched_getaffinity(0)) if effort > MIN_PARALLEL_EFFORT else 1
    cores = min(cores, len(jobs))
    inline = ((job, _run(job, inputs)) for job in jobs)
    results: dict[SimulationJob, SimulationRun] = {}
    for job, run in inline if cores <= 1 else _run_in_pool(jobs, inputs, cores):
        results[job] = run
        on_done(job)
    return {job: results[job] for job in jobs}  # a pool completes jobs in any order


def _run_in_pool(
    jobs: Sequence[SimulationJob], inputs: "_Inputs", cores: int
) -> Iterator[tuple[SimulationJob, SimulationRun]]:
    pool = ProcessPoolExecutor(
        cores,
        get_context("spawn"),  # fork would copy the locks of numpy's threads
        initializer=_init_worker,
        initargs=(inputs,),  # sent once for each worker, not for each job
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


class _Inputs(NamedTuple):
    """What all jobs of a call share."""

    streams: Sequence[WriteRateStream] = ()
    setup: SimulationSetup = SimulationSetup()
    live: "LiveSettings | None" = None  # None: the paper's replay


class _Worker:
    inputs: _Inputs = _Inputs()


def _init_worker(inputs: _Inputs) -> None:
    _Worker.inputs = inputs


def _run_in_worker(job: SimulationJob) -> SimulationRun:
    return _run(job, _Worker.inputs)


def _run(job: SimulationJob, inputs: _Inputs) -> SimulationRun:
    contender, stream = parse_contender(job.name), inputs.streams[job.stream]
    setup = replace(inputs.setup, headroom=job.headroom)
    if inputs.live is None:
        return run_simulation(contender, stream, setup)
    from trimtab.sidecar.simulation.live_loop import run_live  # noqa: PLC0415 - slow to load

    return run_live(contender, stream, setup, inputs.live)
