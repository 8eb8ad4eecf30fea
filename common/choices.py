"""Choices and defaults that the settings of consumer, queues and sidecar share.

This module imports nothing, so that `--help` can name them quickly.
"""

from enum import StrEnum
from typing import Final

DEFAULT_HEURISTIC: Final = "steady"
DEFAULT_BATCH_MAX_AGE_S: Final = 10.0
"""Default of `batch.max.age`, which the sidecar compares with its freshness objective."""


class QueueKind(StrEnum):
    """The kinds of queues; the name is what `open_queue` takes."""

    KMQ = "kmq"
    ORDERED = "ordered"
    SHARE = "share"
