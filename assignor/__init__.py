"""Pure decisions: placement of partitions on consumers, and the number of consumers."""

from typing import TYPE_CHECKING

from trimtab.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from trimtab.assignor.analysis.streams.generators import FlashCrowd, OversizeLoad, RandomWalk, ZipfLoad
    from trimtab.assignor.analysis.streams.replay import ReplayTick, replay_stream
    from trimtab.assignor.analysis.streams.stream import WriteRateStream
    from trimtab.assignor.heuristics.registry import get_heuristic, list_heuristics
    from trimtab.assignor.model import (
        UNASSIGNED,
        ConsumerGroup,
        Load,
        Member,
        Move,
        PackingProblem,
        PlacementPlan,
        PlacementPolicy,
        TopicPartition,
    )
    from trimtab.assignor.model.heuristic import Heuristic
    from trimtab.assignor.modes.decisions import place_partitions, size_group
    from trimtab.assignor.scores.score import cardinal_bin_score, lower_bound, mean_r_score, r_score
    from trimtab.common.errors import (
        BrokenHeuristicError,
        CallerError,
        InvalidPayloadError,
        InvalidProblemError,
        InvalidStreamError,
        PeerError,
        SettingError,
        TrimtabError,
        UnknownHeuristicError,
    )

__all__ = [
    "UNASSIGNED",
    "BrokenHeuristicError",
    "CallerError",
    "ConsumerGroup",
    "FlashCrowd",
    "Heuristic",
    "InvalidPayloadError",
    "InvalidProblemError",
    "InvalidStreamError",
    "Load",
    "Member",
    "Move",
    "OversizeLoad",
    "PackingProblem",
    "PeerError",
    "PlacementPlan",
    "PlacementPolicy",
    "RandomWalk",
    "ReplayTick",
    "SettingError",
    "TopicPartition",
    "TrimtabError",
    "UnknownHeuristicError",
    "WriteRateStream",
    "ZipfLoad",
    "cardinal_bin_score",
    "get_heuristic",
    "list_heuristics",
    "lower_bound",
    "mean_r_score",
    "place_partitions",
    "r_score",
    "replay_stream",
    "size_group",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(
            ("FlashCrowd", "OversizeLoad", "RandomWalk", "ZipfLoad"),
            "trimtab.assignor.analysis.streams.generators",
        ),
        **dict.fromkeys(("ReplayTick", "replay_stream"), "trimtab.assignor.analysis.streams.replay"),
        "WriteRateStream": "trimtab.assignor.analysis.streams.stream",
        **dict.fromkeys(("place_partitions", "size_group"), "trimtab.assignor.modes.decisions"),
        "Heuristic": "trimtab.assignor.model.heuristic",
        **dict.fromkeys(("get_heuristic", "list_heuristics"), "trimtab.assignor.heuristics.registry"),
        **dict.fromkeys(
            (
                "UNASSIGNED",
                "ConsumerGroup",
                "Load",
                "Member",
                "Move",
                "PackingProblem",
                "PlacementPlan",
                "PlacementPolicy",
                "TopicPartition",
            ),
            "trimtab.assignor.model",
        ),
        **dict.fromkeys(
            ("cardinal_bin_score", "lower_bound", "mean_r_score", "r_score"), "trimtab.assignor.scores.score"
        ),
        **dict.fromkeys(
            (
                "BrokenHeuristicError",
                "CallerError",
                "InvalidPayloadError",
                "InvalidProblemError",
                "InvalidStreamError",
                "PeerError",
                "SettingError",
                "TrimtabError",
                "UnknownHeuristicError",
            ),
            "trimtab.common.errors",
        ),
    },
)
