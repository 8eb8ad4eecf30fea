"""Where the partitions of a topic begin: at the offsets of its table, whose name no other topic may have."""

import random
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Final

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.type_vars import ResultT
from trimtab.consumer_sdk.errors import LakeUnavailableError
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.model.interfaces import Lake
from trimtab.consumer_sdk.lake.model.table_names import TableNames
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

_ASKED_AT_ONCE: Final = 8  # tables of one assignment


@dataclass(slots=True)
class _Question:
    """Asks for a table's offsets; `error` is that of the first time."""

    table: str
    answer: "Future[CommittedOffsets]"
    error: LakeUnavailableError | None = None


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

    def check_lake(self, timeout_s: float) -> None:
        """Raise LakeUnavailableError if no table was ever reached, and the lake cannot list them either."""
        if not self._tables_by_topic:
            listed: Future[Sequence[str]] = Future()
            _start_thread(partial(_settle, listed, self._lake.list_tables))
            wait([listed], timeout=timeout_s)
            if not listed.done():
                raise LakeUnavailableError("the lake did not list its tables within lake.flush.timeout")
            listed.result()

    def list_unknown(self, partitions: Collection[TopicPartition]) -> list[str]:
        """Return the topics of these partitions whose starts were not found, sorted."""
        return sorted({p.topic for p in partitions} - self._tables_by_topic.keys())

    def list_topics(self, table: str) -> list[str]:
        """Return the topics of a table, sorted."""
        # A copy: this runs on a flush thread, and an assignment may register a topic meanwhile.
        return sorted(topic for topic, name in tuple(self._tables_by_topic.items()) if name == table)

    def ask_for_offsets(self, table: str) -> "Future[CommittedOffsets]":
        """Read a table's offsets once, on a thread of its own: the call may take long to fail, or hang."""
        question = _Question(table, Future())
        _start_thread(partial(self._answer, deque([question]), self._clock.monotonic()))
        return question.answer

    def ask_for_all_offsets(
        self, tables: Iterable[str], deadline: float
    ) -> "dict[str, Future[CommittedOffsets]]":
        """Read tables' offsets side by side, and wait for the answers until the deadline.

        Each table is asked once before an unreachable one is asked again. An answer that is not done by then
        is that of a call that has not returned; what waited for a thread has failed.
        """
        asked = [_Question(table, Future()) for table in sorted(tables)]
        questions = deque(asked)
        for _ in range(min(_ASKED_AT_ONCE, len(asked))):
            _start_thread(partial(self._answer, questions, deadline))
        # Bounded, as a callback holds up the whole group's rebalance.
        wait([question.answer for question in asked], max(0.0, deadline - self._clock.monotonic()))
        while (question := _pop_first(questions)) is not None:
            late = LakeUnavailableError(f"{question.table}: not asked, since too many others did not answer")
            question.error = question.error or late
        return {question.table: _conclude(question) for question in asked}

    def _answer(self, questions: deque[_Question], deadline: float) -> None:
        """Answer questions that other threads share, the unreachable tables last and until the deadline."""
        while (question := _pop_first(questions)) is not None:
            until = self._clock.monotonic() if question.error is None else deadline
            try:
                offsets = self.read_offsets(question.table, until)
            except BaseException as error:  # noqa: BLE001 - the future raises it
                if isinstance(error, LakeUnavailableError) and self._clock.monotonic() < deadline:
                    question.error = error
                    questions.append(question)
                else:
                    question.answer.set_exception(error)
            else:
                question.answer.set_result(offsets)

    def read_offsets(self, table: str, deadline: float) -> CommittedOffsets:
        """Return a table's offsets; an outage is retried until the deadline, of the monotonic clock.

        Raises CommittedOffsetsLostError, LakeUnavailableError, and any error of a table that does not open.
        """

        def read() -> CommittedOffsets:
            opened = self._lake.open_table(table)
            return CommittedOffsets() if opened is None else opened.read_offsets(refresh=False).offsets

        now = self._clock.monotonic()
        rng = random.Random(0)  # noqa: S311 - jitter
        backoff = RetryBackoff(rng, patience_s=deadline - now, now=self._clock.monotonic, failing_since=now)
        return backoff.retry_until_cancelled(f"reading the offsets of {table}", read)


def _pop_first(questions: deque[_Question]) -> _Question | None:
    try:
        return questions.popleft()
    except IndexError:  # not asked before: another thread may pop the last one meanwhile
        return None


def _conclude(question: _Question) -> "Future[CommittedOffsets]":
    """Return the answer; that of a table that failed, and is asked again, is its error."""
    if question.error is None or question.answer.done():
        return question.answer
    failed: Future[CommittedOffsets] = Future()
    failed.set_exception(question.error)
    return failed


def _settle(answer: "Future[ResultT]", call: Callable[[], ResultT]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001 - the future raises it
        answer.set_exception(error)


def _start_thread(run: Callable[[], object]) -> None:
    # A daemon: a call that hangs must not block the exit.
    threading.Thread(target=run, name="trimtab-starts", daemon=True).start()
