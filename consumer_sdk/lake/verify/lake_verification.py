"""Verifying the tables of a lake: which is of what kind, and each one's verdict in turn."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import MarksLost
from trimtab.consumer_sdk.lake import settings as lake_config
from trimtab.consumer_sdk.lake.lake import SparkLake, StoredTable
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gap
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks
from trimtab.consumer_sdk.lake.schema.table_names import DEAD_LETTER, TableNames, dead_letter
from trimtab.consumer_sdk.lake.verify import table_verification
from trimtab.consumer_sdk.lake.verify.table_rows import SparkRows, lacking
from trimtab.consumer_sdk.lake.verify.table_verification import (
    LETTERS,
    OWN,
    SIDE,
    Asked,
    Kind,
    Log,
    Lots,
    Told,
    Verdict,
)

TRANSFORM: Final = "lake.transform"


@dataclass(frozen=True, slots=True)
class Rules:
    """How the tables of a configuration come about; `transformed`: rows are not records."""

    names: TableNames
    transformed: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Rules":
        """Read a flat configuration; its transform is not loaded. Raises SettingError."""
        plain = {name: value for name, value in config.items() if name != TRANSFORM}
        checked = lake_config.parse({"enable.auto.commit": False, **plain})
        return cls(checked.names, config.get(TRANSFORM) is not None)

    def kind(self, table: str, marks: Marks) -> Kind:
        """Return what can be said of a table's rows."""
        topics = {topic for group in marks.groups for topic in marks.topics(group)}
        if table.endswith(DEAD_LETTER):
            return LETTERS
        own = any(self.names.of(topic) == table for topic in topics)
        return OWN if own and not self.transformed else SIDE


@dataclass(frozen=True, slots=True)
class Verification:
    """Verifies tables.

    `log` is None where the broker is not asked, `lots` where no rows are compared with it.
    """

    lake: SparkLake
    rules: Rules
    log: Log | None
    lots: Lots | None
    tell: Told

    def run(self, names: Iterable[str]) -> Iterator[Verdict]:
        """Give the verdict on each table. Raises LakeUnavailable, BrokerUnreachable."""
        for name in names:
            table = self.lake.open(name)
            if table is None:
                continue
            try:
                yield self._verdict(name, table)
            except MarksLost as error:
                yield Verdict(name, "not known", (), (str(error),), failed=True)

    def _verdict(self, name: str, table: StoredTable) -> Verdict:
        marks = table.look().marks
        if not marks.groups:
            return Verdict(name, "not Trimtab's", ())
        kind = self.rules.kind(name, marks)
        gone = lacking(self.lake.spark, name)
        if gone:  # a transform may leave them out
            note = f"no column {', '.join(gone)}: which record a row is cannot be told"
            return Verdict(name, kind.name, (), (note,), failed=kind is not SIDE)
        letters = dead_letter(name)
        beside = kind is OWN and self.lake.open(letters) is not None
        gaps = table.gaps()

        def recorded(where: TopicPartition) -> Iterable[Gap]:
            return [gap for group in gaps.groups for gap in gaps.of(group, where).ranges]

        rows = SparkRows(self.lake.spark, [name, *([letters] if beside else [])])
        asked = Asked(name, kind, rows, marks, lambda: table.look().marks, recorded)
        return table_verification.verify(asked, self.log, self.lots, self.tell)
