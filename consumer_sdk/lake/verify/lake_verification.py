"""Verifies the tables of a lake one after another, each by the rules of its kind."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake, StoredTable
from trimtab.consumer_sdk.lake.model.table_names import TableNames, dead_letter_table, is_dead_letter_table
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.options import settings as lake_config
from trimtab.consumer_sdk.lake.verify import table_verification as checks
from trimtab.consumer_sdk.lake.verify.table_rows import SparkTableRows, find_missing_coordinates

TRANSFORM_SETTING: Final = "lake.transform"


@dataclass(frozen=True, slots=True)
class TableKindRules:
    """Kinds of the tables of a configuration."""

    table_names: TableNames
    transformed: bool  # rows are not records

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "TableKindRules":
        """Read a flat configuration. Raises SettingError."""
        # without the transform: loading it would run the user's code
        plain = {name: value for name, value in config.items() if name != TRANSFORM_SETTING}
        parsed = lake_config.parse_lake_config({"enable.auto.commit": False, **plain})
        changed = config.get(TRANSFORM_SETTING) is not None or parsed.changes is not None
        return cls(parsed.table_names, changed)

    def classify_table(self, table: str, offsets: CommittedOffsets) -> checks.TableKind:
        """Return the kind of a table."""
        topics = {topic for group in offsets.groups for topic in offsets.topics_of(group)}
        if is_dead_letter_table(table):
            return checks.DEAD_LETTER_TABLE
        own = any(self.table_names.table_for(topic) == table for topic in topics)
        return checks.TOPIC_TABLE if own and not self.transformed else checks.DERIVED_TABLE


@dataclass(frozen=True, slots=True)
class LakeVerification:
    """Verifies tables."""

    lake: SparkLake
    rules: TableKindRules
    topic_log: checks.TopicLog | None  # None: without the broker
    sampler: checks.RangeSampler | None  # None: no comparison of rows
    report_progress: checks.VerificationProgress

    def run(self, names: Iterable[str]) -> Iterator[checks.TableVerification]:
        """Yield the result of each table. Raises LakeUnavailableError, BrokerUnreachableError."""
        for name in names:
            table = self.lake.open_table(name)
            if table is None:  # dropped since it was listed
                continue
            try:
                yield self._verify_table(name, table)
            except CommittedOffsetsLostError as error:
                yield checks.TableVerification(name, "unknown", (), (str(error),), failed=True)

    def _verify_table(self, name: str, table: StoredTable) -> checks.TableVerification:
        offsets = table.read_offsets().offsets
        if not offsets.groups:
            return checks.TableVerification(name, "not written by Trimtab", ())
        kind = self.rules.classify_table(name, offsets)
        missing = find_missing_coordinates(self.lake.spark, name)
        if missing:  # a transform may leave them out
            note = f"no column {', '.join(missing)}: rows cannot be matched to records"
            return checks.TableVerification(
                name, kind.name, (), (note,), failed=kind is not checks.DERIVED_TABLE
            )
        letters = dead_letter_table(name)
        has_letters = kind is checks.TOPIC_TABLE and self.lake.open_table(letters) is not None
        gaps = table.read_gaps()

        def recorded(where: TopicPartition) -> Iterable[OffsetGap]:
            return [gap for group in gaps.groups for gap in gaps.missing_offsets(group, where).ranges]

        rows = SparkTableRows(self.lake.spark, [name, letters] if has_letters else [name])
        request = checks.VerificationRequest(
            name, kind, rows, offsets, lambda: table.read_offsets().offsets, recorded
        )
        return checks.verify_table(request, self.topic_log, self.sampler, self.report_progress)
