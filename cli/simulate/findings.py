"""What a call of `trimtab simulate` found, for whoever prints it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.assignor.analysis.simulation import (
    Candidate,
    Duel,
    Recommendation,
    Run,
    Setup,
    Summary,
    contender,
    duel,
    mean_of,
    recommend,
    summaries,
)
from trimtab.assignor.analysis.streams.replay import lower_bounds
from trimtab.assignor.analysis.streams.stream import Stream
from trimtab.cli.simulate.worker_pool import Job

RIVALS: Final = ("mwf", "mbf", "mbfp")
"""Whom to compare with over several streams, unless told otherwise."""

SHORT: Final = 10
"""Times the limit of lateness that a stream must last to say anything about lateness."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """Partitions that write more than a consumer sustains; `peak` is the highest, in bytes/s."""

    count: int
    peak: float


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything there is to say; `runs` and `single` have an entry for each stream.

    `doubt` says why nothing can be recommended; "" where something can.
    """

    title: str
    setup: Setup
    streams: Sequence[Stream]
    runs: Sequence[Mapping[str, Run]]
    single: Sequence[Mapping[str, Summary]]
    means: Mapping[str, Summary]
    duels: Sequence[Duel]
    candidates: Sequence[Candidate]
    advice: Recommendation | None
    doubt: str
    limit: float  # percent of late traffic
    oversized: Oversized


def findings(
    title: str,
    streams: Sequence[Stream],
    setup: Setup,
    found: Mapping[Job, Run],
    against: Sequence[str],
    limit: float,
) -> Findings:
    """Turn runs into findings; those at the setup's headroom are compared, all are candidates."""
    numbers = range(len(streams))
    runs = [_runs(found, n, setup.headroom) for n in numbers]
    bounds = [lower_bounds(stream, setup.capacity) for stream in streams]
    single = [summaries(r, setup, b) for r, b in zip(runs, bounds, strict=True)]
    means = {name: mean_of([s[name] for s in single]) for name in single[0]}
    candidates: list[Candidate] = []
    for headroom in sorted({job.headroom for job in found}, reverse=True):
        at = [
            summaries(_runs(found, n, headroom), setup, b)
            for n, b in zip(numbers, bounds, strict=True)
        ]
        candidates += [
            Candidate(name, headroom, mean_of([s[name] for s in at]))
            for name in at[0]
            if contender(name).ours
        ]
    rivals = [n for n in against or (RIVALS if len(streams) > 1 else ()) if n in means]
    ours = [n for n in means if single[0][n].cbs_percent is not None]
    doubt = _doubt(streams, setup, candidates)
    return Findings(
        title=title,
        setup=setup,
        streams=streams,
        runs=runs,
        single=single,
        means=means,
        duels=[duel(n, rival, single) for n in ours for rival in rivals if n != rival],
        candidates=candidates,
        advice=None if doubt else recommend(candidates, limit),
        doubt=doubt,
        limit=limit,
        oversized=_oversized(streams, setup.capacity),
    )


def _runs(found: Mapping[Job, Run], stream: int, headroom: float) -> dict[str, Run]:
    return {
        job.name: run
        for job, run in found.items()
        if job.stream == stream and job.headroom == headroom
    }


def _doubt(streams: Sequence[Stream], setup: Setup, candidates: Sequence[Candidate]) -> str:
    """Say why these streams tell nothing about what to set."""
    if not candidates:
        return "none of those simulated is a setting of Trimtab"
    lasts = min(len(stream.speeds) - 1 for stream in streams) * setup.tick
    if lasts < SHORT * setup.late:
        return (
            f"after its first tick the stream lasts {lasts:g} s, too short to tell what would be "
            f"late: {SHORT} times --late are {SHORT * setup.late:g} s"
        )
    if not any(np.nansum(stream.speeds[1:]) > 0 for stream in streams):
        return "nothing is written in this stream"
    return ""


def _oversized(streams: Sequence[Stream], capacity: float) -> Oversized:
    peaks = [
        np.nanmax(np.append(s.speeds, np.zeros((1, s.speeds.shape[1])), 0), 0) for s in streams
    ]
    over = [int(np.count_nonzero(p > capacity)) for p in peaks]
    return Oversized(max(over), float(max(p.max(initial=0.0) for p in peaks)))
