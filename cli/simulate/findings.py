"""Results of one `trimtab simulate` call, for all output formats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from trimtab.assignor.analysis.simulation import (
    RunSummary,
    SettingCandidate,
    SettingRecommendation,
    SimulationRun,
    SimulationSetup,
    average_summaries,
    parse_contender,
    recommend_setting,
    summarize_runs,
)
from trimtab.assignor.analysis.streams.replay import lower_bounds
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.cli.simulate.worker_pool import SimulationJob

MIN_LATE_LIMITS: Final = 10  # multiples of the late limit: in a shorter stream little can be late


@dataclass(frozen=True, slots=True)
class OversizedPartitions:
    """Partitions above the capacity of a consumer."""

    count: int
    peak: float  # highest rate, bytes/s


@dataclass(frozen=True, slots=True)
class SimulationFindings:
    """All results; `runs` and `summaries` have one entry per stream."""

    title: str
    setup: SimulationSetup
    streams: Sequence[WriteRateStream]
    runs: Sequence[Mapping[str, SimulationRun]]
    summaries: Sequence[Mapping[str, RunSummary]]
    mean_summaries: Mapping[str, RunSummary]
    candidates: Sequence[SettingCandidate]
    recommendation: SettingRecommendation | None
    no_recommendation_reason: str  # "" with a recommendation
    late_limit_percent: float  # of the traffic
    oversized: OversizedPartitions
    live: bool = False  # of the closed loop; else of the paper's replay
    settings: tuple[str, ...] = ()  # of the sidecar, that the run was given, as lines of its file
    notes: tuple[str, ...] = ()  # how the streams were made


def build_findings(
    title: str,
    streams: Sequence[WriteRateStream],
    setup: SimulationSetup,
    results: Mapping[SimulationJob, SimulationRun],
    limit: float,
) -> SimulationFindings:
    """Build findings: runs at the setup's headroom are compared, all are candidates."""
    bounds = [lower_bounds(stream, setup.capacity) for stream in streams]

    def summarize(headroom: float) -> list[dict[str, RunSummary]]:
        each = enumerate(bounds)
        return [dict(summarize_runs(_select_runs(results, n, headroom), setup, b)) for n, b in each]

    single = summarize(setup.headroom)
    means = {name: average_summaries([s[name] for s in single]) for name in single[0]}
    candidates: list[SettingCandidate] = []
    for headroom in sorted({job.headroom for job in results}, reverse=True):
        at = summarize(headroom)
        candidates += [
            SettingCandidate(name, headroom, average_summaries([s[name] for s in at]))
            for name in at[0]
            if parse_contender(name).is_trimtab_setting
        ]
    reason = _explain_no_recommendation(streams, setup, candidates)
    return SimulationFindings(
        title=title,
        setup=setup,
        streams=streams,
        runs=[_select_runs(results, n, setup.headroom) for n in range(len(streams))],
        summaries=single,
        mean_summaries=means,
        candidates=candidates,
        recommendation=None if reason else recommend_setting(candidates, limit),
        no_recommendation_reason=reason,
        late_limit_percent=limit,
        oversized=_count_oversized_partitions(streams, setup.capacity),
    )


def hold_out(findings: SimulationFindings, tuned: SettingRecommendation | None) -> SimulationFindings:
    """Return the findings with a setting that was chosen on other streams, and its figures on these."""
    if tuned is None:
        reason = "no setting was chosen on the first half"
        return replace(findings, recommendation=None, no_recommendation_reason=reason)
    there = tuned.chosen
    (here,) = (c for c in findings.candidates if (c.name, c.headroom) == (there.name, there.headroom))
    limit = findings.late_limit_percent
    late = here.summary.late_percent
    reason = (
        f"on the first half {tuned.reason}. On the second: {here.summary.consumer_hours:.1f} consumer-hours, "
        f"{late:.2f} % late"
    )
    held = SettingRecommendation(here, within_limit=late <= limit, reason=reason)
    return replace(findings, recommendation=held, no_recommendation_reason="")


def _select_runs(
    results: Mapping[SimulationJob, SimulationRun], stream: int, headroom: float
) -> dict[str, SimulationRun]:
    return {
        job.name: run for job, run in results.items() if job.stream == stream and job.headroom == headroom
    }


def _explain_no_recommendation(
    streams: Sequence[WriteRateStream], setup: SimulationSetup, candidates: Sequence[SettingCandidate]
) -> str:
    if not candidates:
        return "none of those simulated is a setting of Trimtab"
    # the first decision comes at the end of the first tick: nothing is late before
    lasts = min(len(stream.rates) - 1 for stream in streams) * setup.tick
    if lasts < MIN_LATE_LIMITS * setup.late:
        return (
            f"after its first tick the stream lasts {lasts:g} s, too short to tell what would be "
            f"late: {MIN_LATE_LIMITS} times --late are {MIN_LATE_LIMITS * setup.late:g} s"
        )
    if not any(np.nansum(stream.rates[1:]) > 0 for stream in streams):
        return "nothing is written in this stream"
    return ""


def _count_oversized_partitions(streams: Sequence[WriteRateStream], capacity: float) -> OversizedPartitions:
    # the row of zeros: nanmax warns of a partition that never has a rate
    peaks = [np.nanmax(np.append(s.rates, np.zeros((1, s.rates.shape[1])), 0), 0) for s in streams]
    over = [int(np.count_nonzero(p > capacity)) for p in peaks]
    return OversizedPartitions(max(over), float(max(p.max(initial=0.0) for p in peaks)))
