"""What decisions do to readers: streams through heuristics, with queues between the two. Pure."""

from trimtab.assignor.simulation.bench import Run, simulate
from trimtab.assignor.simulation.compare import Duel, duel, summaries
from trimtab.assignor.simulation.contenders import Contender, contender, contenders, default_names
from trimtab.assignor.simulation.metrics import Summary, mean_of
from trimtab.assignor.simulation.recommend import HEADROOMS, Candidate, Recommendation, recommend
from trimtab.assignor.simulation.setup import Setup

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
