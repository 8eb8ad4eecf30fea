"""The history of a run (`history`): what producers wrote, consumers were handed and tables hold."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from history.events import History, Outcome, Poll, Row, Start, Write
from simulation.lake import Content
from trimtab.assignor.model import TopicPartition
from trimtab.testing.simulation.broker import Log
from trimtab.testing.simulation.green import Hub

TABLES = "tables"
"""The tables together: a transform sends each record to one of them."""


@dataclass(slots=True)
class Recorder:
    """Records starts and polls; knows the rest at the end."""

    hub: Hub
    log: Log
    starts: list[Start] = field(default_factory=list[Start])
    polls: list[Poll] = field(default_factory=list[Poll])
    _last: float = 0.0

    def started(
        self, worker: str, epoch: int, partition: TopicPartition, committed: int | None, offset: int | None
    ) -> None:
        """Record that a consumer begins to read, or goes back."""
        self.starts.append(Start(worker, epoch, str(partition), self._now(), committed, offset))

    def handed(self, worker: str, epoch: int, partition: TopicPartition, messages: Iterable[Any]) -> None:
        """Record what a consumer got of a partition in one answer."""
        records = tuple((m.offset(), int(m.value())) for m in messages)
        begin = self.log.lows[partition]
        self.polls.append(Poll(worker, epoch, str(partition), self._now(), records, begin))

    def _now(self) -> float:
        # events of one simulated moment have an order too
        self._last = max(self.hub.now, self._last + 1e-6)
        return self._last

    def build(
        self,
        tables: Sequence[Content],
        group: str,
        reached: Mapping[TopicPartition, tuple[int, int]],
        *,
        settled: bool,
    ) -> History:
        """Return the history; `reached` has where the group began and stands in each partition."""
        gaps: defaultdict[str, set[int]] = defaultdict(set)
        for partition, (begin, mark) in reached.items():
            gaps[str(partition)].update(range(begin), range(mark, self.log.lows[partition]))
        for content in tables:
            for partition, missing in content.gaps.groups.get(group, {}).items():
                gaps[str(partition)].update(chain(*(range(*found) for found in missing.ranges)))
        # of changes only the last one of a key has a row
        keyed = any(content.keyed for content in tables)
        rows = (row for content in tables for snapshot in content.snapshots for row in snapshot.rows)
        return History(
            tuple(self._writes()),
            tuple(self.starts),
            tuple(self.polls),
            () if keyed else tuple(Row(TABLES, str(r.partition), r.offset, int(r.value)) for r in rows),
            gaps,
            self.log.read_committed,
            () if keyed else (TABLES,),
            settled,
        )

    def _writes(self) -> Iterable[Write]:
        for records in (self.log.records, self.log.aborted):
            for partition, values in records.items():
                for offset, value in values.items():
                    number = int(value)
                    outcome = Outcome.ABORTED if number < 0 else Outcome.COMMITTED
                    yield Write(str(partition), number, offset, outcome)
