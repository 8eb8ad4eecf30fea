"""Interface of a consumer's spans; this implementation does nothing, for `trimtab.telemetry: false`."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from confluent_kafka import Message

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.membership_events import CommitPosition

NOTHING: Final[AbstractContextManager[None]] = nullcontext()


class ConsumerSpans:
    """Spans of one consumer: received, processed and settled records."""

    is_on = False

    def record_receive(self, messages: Sequence[Message], seconds: float) -> None:
        """Record that these messages were returned, after a call of `seconds`."""

    def trace_processing(self, messages: Sequence[Message]) -> AbstractContextManager[None]:
        """Return a block that processes these messages."""
        del messages
        return NOTHING

    def trace_delivery(self, message: Message, delivery: int) -> AbstractContextManager[None]:
        """Return a block that processes a message of a queue; `delivery` is 1 for the first time."""
        del message, delivery
        return NOTHING

    def trace_settlement(self, topic: str) -> AbstractContextManager[None]:
        """Return a block that settles messages of a share group."""
        del topic
        return NOTHING

    def trace_commit(
        self, positions: Mapping[TopicPartition, CommitPosition]
    ) -> AbstractContextManager[None]:
        """Return a block that commits these positions."""
        del positions
        return NOTHING

    def begin_commit(self, positions: Mapping[TopicPartition, CommitPosition]) -> None:
        """Note that these positions are committed in the background."""

    def end_commit(self, positions: Mapping[TopicPartition, CommitPosition], error: Exception | None) -> None:
        """Record the answer to a commit in the background."""
