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

from trimtab.assignor.analysis.simulation import Run, Setup, contender, simulate
from trimtab.assignor.analysis.streams.stream import Stream
from trimtab.cli.errors import WorkerLost

WORTH_IT: Final = 1_000_000
"""Speeds to go through (ticks x partitions x jobs) that take longer than starting a worker."""


class Job(NamedTuple):
    """One simulation."""

    stream: int
    name: str
    headroom: float


def do(
    jobs: Sequence[Job],
    streams: Sequence[Stream],
    setup: Setup,
    cores: int | None,
    done: Callable[[Job], None],
) -> dict[Job, Run]:
    """Return what each job gave; `done` is told of each when it is.

    `cores` None takes all, if that is worth it. Raises what a simulation raises, and WorkerLost.
    """
    effort = sum(streams[job.stream].speeds.size for job in jobs)
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if effort > WORTH_IT else 1
    cores = min(cores, len(jobs))
    made = _here(jobs, streams, setup) if cores <= 1 else _there(jobs, streams, setup, cores)
    found: dict[Job, Run] = {}
    for job, run in made:
        found[job] = run
        done(job)
    return {job: found[job] for job in jobs}


def _here(
    jobs: Sequence[Job], streams: Sequence[Stream], setup: Setup
) -> Iterator[tuple[Job, Run]]:
    for job in jobs:
        yield job, _run(job, streams[job.stream], setup)


def _there(
    jobs: Sequence[Job], streams: Sequence[Stream], setup: Setup, cores: int
) -> Iterator[tuple[Job, Run]]:
    pool = ProcessPoolExecutor(
        cores, get_context("spawn"), initializer=_begin, initargs=(tuple(streams), setup)
    )
    try:
        with _undisturbed():
            asked = {pool.submit(_work, job): job for job in jobs}
        for answer in as_completed(asked):
            yield asked[answer], answer.result()
    except BrokenProcessPool as error:
        raise WorkerLost(cores) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _undisturbed() -> Generator[None]:
    """Keep Ctrl-C from the workers begun inside: they inherit it, and the parent ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Given:
    """What a worker was given at its start."""

    streams: Sequence[Stream] = ()
    setup: Setup = Setup()


def _begin(streams: Sequence[Stream], setup: Setup) -> None:
    _Given.streams, _Given.setup = streams, setup


def _work(job: Job) -> Run:
    return _run(job, _Given.streams[job.stream], _Given.setup)


def _run(job: Job, stream: Stream, setup: Setup) -> Run:
    return simulate(contender(job.name), stream, replace(setup, headroom=job.headroom))
