"""Simulation of heuristics on streams of write rates, with backlogs and pauses. Pure."""

from trimtab.assignor.analysis.simulation.closed_loop import SimulationRun, run_simulation
from trimtab.assignor.analysis.simulation.contenders import (
    Contender,
    default_contender_names,
    parse_contender,
    parse_contenders,
)
from trimtab.assignor.analysis.simulation.metrics import RunSummary, average_summaries, summarize_runs
from trimtab.assignor.analysis.simulation.recommendation import (
    CANDIDATE_HEADROOMS,
    SettingCandidate,
    SettingRecommendation,
    recommend_setting,
)
from trimtab.assignor.analysis.simulation.setup import SimulationSetup

__all__ = [
    "CANDIDATE_HEADROOMS",
    "Contender",
    "RunSummary",
    "SettingCandidate",
    "SettingRecommendation",
    "SimulationRun",
    "SimulationSetup",
    "average_summaries",
    "default_contender_names",
    "parse_contender",
    "parse_contenders",
    "recommend_setting",
    "run_simulation",
    "summarize_runs",
]
