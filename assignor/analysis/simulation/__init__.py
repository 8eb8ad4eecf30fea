"""What decisions do to readers: streams through heuristics, with queues between the two. Pure."""

from trimtab.assignor.analysis.simulation.closed_loop import Run, simulate
from trimtab.assignor.analysis.simulation.comparison import Duel, duel, summaries
from trimtab.assignor.analysis.simulation.contenders import (
    Contender,
    contender,
    contenders,
    default_names,
)
from trimtab.assignor.analysis.simulation.metrics import Summary, mean_of
from trimtab.assignor.analysis.simulation.recommendation import (
    HEADROOMS,
    Candidate,
    Recommendation,
    recommend,
)
from trimtab.assignor.analysis.simulation.setup import Setup

__all__ = [
    "HEADROOMS",
    "Candidate",
    "Contender",
    "Duel",
    "Recommendation",
    "Run",
    "Setup",
    "Summary",
    "contender",
    "contenders",
    "default_names",
    "duel",
    "mean_of",
    "recommend",
    "simulate",
    "summaries",
]
