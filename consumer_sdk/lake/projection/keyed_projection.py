"""Records of a batch to the net changes of a keyed table: `lake.write: upsert`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trimtab.consumer_sdk.lake.changes.change_decoders import ChangeDecoder
from trimtab.consumer_sdk.lake.changes.change_formats import ChangeRecognizer
from trimtab.consumer_sdk.lake.changes.change_rows import POSITION_COLUMNS, KeyRules, build_change_rows
from trimtab.consumer_sdk.lake.changes.key_schemas import check_key_schemas
from trimtab.consumer_sdk.lake.changes.keyed_changes import KeyedChanges, reduce_changes
from trimtab.consumer_sdk.lake.changes.truncations import (
    apply_truncation,
    check_single_partition,
    list_partitions,
    reject_truncations,
)
from trimtab.consumer_sdk.lake.decoding.decoded_records import (
    DecodedRecords,
    Reason,
    join_letters,
    split_by_reason,
)
from trimtab.consumer_sdk.lake.decoding.value_ranges import STRICT_RANGES, ValueRanges
from trimtab.consumer_sdk.lake.model.table_names import dead_letter_table
from trimtab.consumer_sdk.lake.model.untyped_arrow import Table
from trimtab.consumer_sdk.lake.projection.projection import ProjectedRows
from trimtab.consumer_sdk.lake.projection.topic_decoders import FrameFactory
from trimtab.consumer_sdk.lake.schema.record_columns import (
    ERROR_COLUMN,
    FIELD_COLUMN,
    RECORD_COLUMNS,
    split_unreadable,
)


@dataclass(frozen=True, slots=True)
class KeyedProjection:
    """Projection of one topic table's change records."""

    table: str
    decoder: ChangeDecoder
    recognize: ChangeRecognizer
    rules: KeyRules
    ranges: ValueRanges = STRICT_RANGES
    lenient: ChangeDecoder | None = None  # reads null for a faulty value of what not every change writes

    def project_records(self, records: Table, to_frame: FrameFactory) -> ProjectedRows:
        """Return the net changes as the rows of the topic table, and the dead letters.

        Raises TableSchemaMismatchError, SchemaRegistryUnavailableError.
        """
        changes, letters = self.read_changes(records)
        sides = {} if letters is None else {dead_letter_table(self.table): to_frame(letters)}
        return ProjectedRows(changes, sides)

    def read_changes(self, records: Table) -> tuple[KeyedChanges, Table | None]:
        """Return the net changes of records in the order of their offsets, and the dead letters, if any.

        Raises TableSchemaMismatchError, SchemaRegistryUnavailableError.
        """
        if self.rules.applies_truncations and records.num_rows:
            check_single_partition(list_partitions(records))
        readable, unreadable = split_unreadable(records)
        decoded, spared = self._decode_values(readable)
        recognized = self.recognize(decoded.rows)
        changes, reasons = build_change_rows(
            decoded.rows, recognized, self.rules, self.decoder, self.ranges, spared
        )
        check_key_schemas(decoded.rows, reasons, self.rules.columns, self.recognize, self.decoder)
        reasons |= recognized.reasons
        if not self.rules.applies_truncations:
            reasons |= reject_truncations(recognized)
        plain = decoded.rows.select(list(RECORD_COLUMNS))
        rejected = split_by_reason(plain, plain, reasons).dead_letters if reasons else None
        whole = join_letters(decoded.dead_letters, rejected, unreadable)
        if self.rules.applies_truncations and recognized.truncations:
            return apply_truncation(decoded.rows, recognized, changes, self.rules), whole
        return reduce_changes(changes, self.rules.key_columns), whole

    def _decode_values(self, records: Table) -> tuple[DecodedRecords, dict[int, str]]:
        """Return the decoded records, and by row the faults that cost a record if they are written."""
        strict = self.decoder.decode_values(records)
        letters = strict.dead_letters
        if self.lenient is None or letters is None or letters.column(FIELD_COLUMN).null_count == len(letters):
            return strict, {}
        decoded = self.lenient.decode_values(records)
        columns = (letters.column(name).to_pylist() for name in (FIELD_COLUMN, ERROR_COLUMN))
        faults = dict(zip(_list_positions(letters), map(Reason.of_letter, *columns), strict=True))
        rows = enumerate(_list_positions(decoded.rows))
        return decoded, {at: faults[position] for at, position in rows if position in faults}


def _list_positions(records: Table) -> Iterable[tuple[Any, ...]]:
    return zip(*(records.column(name).to_pylist() for name in POSITION_COLUMNS), strict=True)
