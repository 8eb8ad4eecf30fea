"""librdkafka's consumer whose calls wait for each other in turn, and end each other's wait for records.

confluent-kafka 2.16 serves one thread at a time, and a thread that waits sleeps and tries again: beside a
loop of `consume` it may never come in.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from confluent_kafka import Consumer as DataConsumer

from trimtab.common.type_vars import ResultT
from trimtab.consumer_sdk.client.fair_lock import FairLock
from trimtab.consumer_sdk.client.fetch_wakeup import FetchWakeup


def _exclusive(method: Callable[..., ResultT]) -> Callable[..., ResultT]:
    """Return a method of librdkafka's consumer that waits for other threads' calls."""

    @wraps(method)
    def call(consumer: "FairConsumer", *arguments: Any, **named: Any) -> ResultT:
        with consumer.access:
            return method(consumer, *arguments, **named)

    return call


class FairConsumer(DataConsumer):
    """Consumer of librdkafka; one thread at a time calls it, with `access`."""

    def __init__(self, config: dict[str, Any], access: FairLock) -> None:
        self.access = access
        super().__init__(config)
        self._wakeup = FetchWakeup(self)
        access.on_wait = self.wake

    @property
    def is_wakeable(self) -> bool:
        """Whether `wake`, and calls of other threads, end a running `consume`."""
        return self._wakeup.is_possible

    def wake(self) -> None:
        """Let the running `consume`, else the next one, return without waiting any longer."""
        self._wakeup.wake()

    def close(self) -> None:
        """Close, as librdkafka does; no call wakes a closing consumer."""
        with self.access:
            self._wakeup.end()
            super().close()

    assignment = _exclusive(DataConsumer.assignment)
    cluster_id = _exclusive(DataConsumer.cluster_id)
    commit = _exclusive(DataConsumer.commit)  # type: ignore[assignment] # two overloads
    committed = _exclusive(DataConsumer.committed)
    consume = _exclusive(DataConsumer.consume)
    consumer_group_metadata = _exclusive(DataConsumer.consumer_group_metadata)
    get_watermark_offsets = _exclusive(DataConsumer.get_watermark_offsets)
    incremental_assign = _exclusive(DataConsumer.incremental_assign)
    incremental_unassign = _exclusive(DataConsumer.incremental_unassign)
    list_topics = _exclusive(DataConsumer.list_topics)
    memberid = _exclusive(DataConsumer.memberid)
    offsets_for_times = _exclusive(DataConsumer.offsets_for_times)
    pause = _exclusive(DataConsumer.pause)
    position = _exclusive(DataConsumer.position)
    resume = _exclusive(DataConsumer.resume)
    seek = _exclusive(DataConsumer.seek)
    unsubscribe = _exclusive(DataConsumer.unsubscribe)
