"""The listener of an AsyncConsumer: any object with aiokafka's methods, functions or coroutines."""

import inspect
import logging
from typing import Any, Final

from trimtab.assignor.topic_partition import TopicPartition

log = logging.getLogger("trimtab.consumer_sdk")

ASSIGNED: Final = "on_partitions_assigned"
REVOKED: Final = "on_partitions_revoked"
LOST: Final = "on_partitions_lost"  # optional: else lost partitions are revoked


def check_listener(listener: object) -> None:
    """Raise TypeError for a listener without its two methods; None is no listener."""
    if listener is not None and not all(
        callable(getattr(listener, name, None)) for name in (ASSIGNED, REVOKED)
    ):
        raise TypeError(f"listener should have {ASSIGNED} and {REVOKED}")


async def call_listener(listener: Any, name: str, partitions: frozenset[TopicPartition]) -> None:
    """Call a method and wait for it; log its error, since a rebalance goes on without it."""
    if listener is None:
        return
    try:
        answer = getattr(listener, name, getattr(listener, REVOKED))(set(partitions))
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        log.exception("%s of the listener failed for %s", name, sorted(partitions))
