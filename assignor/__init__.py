"""The pure decisions of Trimtab: who reads which partition, and how many consumers to have."""

from trimtab.assignor.analysis.streams.generators import FlashCrowd, Oversize, Walk, Zipf
from trimtab.assignor.analysis.streams.replay import Tick, replay
from trimtab.assignor.analysis.streams.stream import Stream
from trimtab.assignor.decisions import place, size
from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.heuristics.registry import get, names
from trimtab.assignor.model import (
    NOBODY,
    Group,
    Load,
    Member,
    Move,
    Plan,
    Policy,
    Problem,
    TopicPartition,
)
from trimtab.assignor.score import cardinal_bin_score, lower_bound, mean_r_score, r_score
from trimtab.common.errors import (
    BadPayload,
    BadProblem,
    BadStream,
    BrokenHeuristic,
    CallerError,
    PeerError,
    SettingError,
    TrimtabError,
    UnknownHeuristic,
)

__all__ = [
    "NOBODY",
    "BadPayload",
    "BadProblem",
    "BadStream",
    "BrokenHeuristic",
    "CallerError",
    "FlashCrowd",
    "Group",
    "Heuristic",
    "Load",
    "Member",
    "Move",
    "Oversize",
    "PeerError",
    "Plan",
    "Policy",
    "Problem",
    "SettingError",
    "Stream",
    "Tick",
    "TopicPartition",
    "TrimtabError",
    "UnknownHeuristic",
    "Walk",
    "Zipf",
    "cardinal_bin_score",
    "get",
    "lower_bound",
    "mean_r_score",
    "names",
    "place",
    "r_score",
    "replay",
    "size",
]
