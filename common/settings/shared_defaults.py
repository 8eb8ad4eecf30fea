"""Choices and defaults that the settings of consumer, queues and sidecar share."""

# no import of another package: `--help` names these choices, and must stay quick

from enum import StrEnum
from typing import Final

DEFAULT_HEURISTIC: Final = "steady"
DEFAULT_BATCH_MAX_AGE_S: Final = 10.0  # the sidecar compares it with its freshness objective


class QueueKind(StrEnum):
    """Kinds of queues, by the name that `open_queue` takes."""

    KMQ = "kmq"
    ORDERED = "ordered"
    SHARE = "share"
