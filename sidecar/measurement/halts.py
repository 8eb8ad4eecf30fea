"""Partitions that their consumer does not read for an error, by the metadata of their commits.

The lake's writer commits the unchanged offset of a halted partition as {"halted": "reason"}. Its next commit
of the partition, or the next owner's, takes that back.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.units import format_first

MAX_REASON: Final = 500  # characters: other clients write their own metadata
_MIN_SENTENCE: Final = 60  # characters, which name a partition


def parse_halts(commit_metadata: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
    """Return why each halted partition is not read."""
    found = {partition: _parse_halt(metadata) for partition, metadata in commit_metadata.items()}
    return {partition: reason for partition, reason in found.items() if reason}


def describe_halts(halts: Mapping[TopicPartition, str], max_chars: int) -> str:
    """Return one sentence for each reason, cut where all do not fit, so that each partition is named."""
    by_reason: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for partition, reason in sorted(halts.items()):
        by_reason[reason].append(partition)
    sentences = [
        f"{format_first(partitions)} {'are' if partitions[1:] else 'is'} not read: {reason}"
        for reason, partitions in by_reason.items()
    ]
    if len(text := "; ".join(sentences)) <= max_chars:
        return text
    most = max_chars // _MIN_SENTENCE - 1
    if rest := len(sentences[most:]):
        sentences[most:] = [f"and {rest} more reasons"]
    share = max_chars // len(sentences) - len("; ")
    return "; ".join(s if len(s) <= share else f"{s[: share - 1]}…" for s in sentences)


def _parse_halt(metadata: str) -> str:
    with suppress(ValueError, TypeError, LookupError, RecursionError):
        body: Any = json.loads(metadata.rstrip("\0"))
        reason = body["halted"]
        return reason[:MAX_REASON] if isinstance(reason, str) else ""
    return ""
