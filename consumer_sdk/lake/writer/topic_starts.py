"""Where the partitions of a topic begin: at the offsets of its table, whose name no other topic may have."""

import random
import threading
from collections.abc import Collection, Iterable
from concurrent.futures import Future

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock
from trimtab.consumer_sdk.lake.interfaces import Lake
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.retry import RetryBackoff
from trimtab.consumer_sdk.lake.schema.table_names import TableNames


class TopicStarts:
    """The topics of one group whose starts were found; flush threads ask only which these are."""

    def __init__(self, lake: Lake, group: str, names: TableNames, clock: Clock) -> None:
        self._lake = lake
        self._group = group
        self._names = names
        self._clock = clock
        self._tables_by_topic: dict[str, str] = {}

    def find_starts(
        self, topic: str, partitions: Iterable[TopicPartition], offsets: CommittedOffsets
    ) -> dict[TopicPartition, int | None]:
        """Return the offsets of a topic's partitions, None for those that its table does not know.

        Raises TableNameCollisionError.
        """
        # Other processes may write topics into this table that map to the same name.
        self._names.check_topic(topic, offsets.topics_of(self._group) | self._tables_by_topic.keys())
        self._tables_by_topic[topic] = self._names.table_for(topic)
        return {p: offsets.next_offset(self._group, p) for p in partitions}

    def check_lake(self) -> None:
        """Raise LakeUnavailableError if no table was ever reached, and the lake cannot list them either."""
        if not self._tables_by_topic:
            self._lake.list_tables()

    def list_unknown(self, partitions: Collection[TopicPartition]) -> list[str]:
        """Return the topics of these partitions whose starts were not found, sorted."""
        return sorted({p.topic for p in partitions} - self._tables_by_topic.keys())

    def list_topics(self, table: str) -> list[str]:
        """Return the topics of a table, sorted."""
        # A copy: this runs on a flush thread, and an assignment may register a topic meanwhile.
        return sorted(topic for topic, name in tuple(self._tables_by_topic.items()) if name == table)

    def ask_for_offsets(self, table: str) -> "Future[CommittedOffsets]":
        """Read a table's offsets once, on a thread of its own: the call may take long to fail."""
        answer: Future[CommittedOffsets] = Future()

        def ask() -> None:
            try:
                answer.set_result(self.read_offsets(table, self._clock.monotonic()))
            except BaseException as error:  # noqa: BLE001 - the future raises it
                answer.set_exception(error)

        threading.Thread(target=ask, name="trimtab-starts", daemon=True).start()
        return answer

    def read_offsets(self, table: str, deadline: float) -> CommittedOffsets:
        """Return a table's offsets; an outage is retried until the deadline, of the monotonic clock.

        Raises CommittedOffsetsLostError, LakeUnavailableError, and any error of a table that does not open.
        """

        def read() -> CommittedOffsets:
            opened = self._lake.open_table(table)
            return CommittedOffsets() if opened is None else opened.read_offsets(refresh=False).offsets

        # Bounded: a callback holds up the whole group's rebalance.
        now = self._clock.monotonic()
        rng = random.Random(0)  # noqa: S311 - jitter
        backoff = RetryBackoff(rng, patience_s=deadline - now, now=self._clock.monotonic, failing_since=now)
        return backoff.retry_until_cancelled(f"reading the offsets of {table}", read)
