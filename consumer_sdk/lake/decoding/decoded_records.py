"""Batches of decoded records, and the records among them that are dead letters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.model.untyped_arrow import Array, Table
from trimtab.consumer_sdk.lake.schema.record_columns import ERROR_COLUMN, FIELD_COLUMN, column_name

MAX_VALUE_BYTES: Final = 1_000_000_000  # of one batch: an Arrow array holds 2 GiB of text
MAX_COLUMN_BYTES: Final = 512_000_000  # of one batch, beside the text
_SAMPLE_ROWS: Final = 64


class BatchTooLargeError(Exception):
    """A batch whose columns take too much memory; its first `records` take less."""

    def __init__(self, records: int) -> None:
        super().__init__(f"the columns of a batch take more than {MAX_COLUMN_BYTES} bytes")
        self.records: Final = records


class Reason(str):
    """Reason of a dead letter whose fault is in one field."""

    __slots__ = ("field",)
    field: str | None

    @classmethod
    def of_field(cls, field: str | None, problem: str) -> "Reason":
        """Return the reason with the field's path; None: the whole record is at fault."""
        return cls.of_letter(field, problem if field is None else f"{field}: {problem}")

    @classmethod
    def of_letter(cls, field: str | None, error: str) -> "Reason":
        """Return the reason of a dead letter with these columns."""
        reason = cls(error)
        reason.field = field
        return reason


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Decoded records with their columns, and the unreadable ones, if any."""

    rows: Records
    dead_letters: Records | None


def decode_objects(
    records: Table, schema: Any, parse: Callable[[Array], tuple[Array, dict[int, str]]]
) -> DecodedRecords:
    """Return the record columns and those of `schema`; a record without a value has nulls there.

    `parse` returns a struct for each of the values, and the reasons of dead letters by row. Raises
    BatchTooLargeError.
    """
    check_value_bytes(records)
    values = records.column("value").combine_chunks()
    present = values.is_valid()
    if values.null_count:
        _check_column_bytes(schema, records.num_rows)
    parsed, errors = parse(values.drop_null())
    scattered = parsed if not values.null_count else scatter_values(parsed, present)
    rows = records
    for field, column in zip(schema, scattered.flatten(), strict=True):
        rows = rows.append_column(column_name(field.name), column)
    if not errors:
        return DecodedRecords(rows, None)
    positions = np.flatnonzero(present.to_numpy(zero_copy_only=False))
    return split_by_reason(rows, records, {int(positions[at]): text for at, text in errors.items()})


def check_value_bytes(records: Records) -> None:
    """Raise BatchTooLargeError for records with more bytes of values than one array holds."""
    total, count = records.column("value").nbytes, records.num_rows
    if total > MAX_VALUE_BYTES and count > 1:
        raise BatchTooLargeError(max(1, count * MAX_VALUE_BYTES // total))


def _check_column_bytes(schema: Any, count: int) -> None:
    """Raise BatchTooLargeError for more records than memory holds, each with a null in every column."""
    nothing = pa.array([], pa.struct(list(schema)))
    width = nothing.take(pa.array([None] * _SAMPLE_ROWS, pa.int64())).nbytes // _SAMPLE_ROWS
    if count * width > MAX_COLUMN_BYTES and count > 1:
        raise BatchTooLargeError(max(1, MAX_COLUMN_BYTES // width))


def split_by_reason(rows: Table, records: Table, reasons: dict[int, str]) -> DecodedRecords:
    """Return the rows without a reason, and the records with one as dead letters."""
    good = np.ones(rows.num_rows, np.bool_)
    good[list(reasons)] = False
    return DecodedRecords(rows.filter(pa.array(good)), take_dead_letters(records, reasons))


def take_dead_letters(records: Any, reasons: Mapping[int, str]) -> Any:
    """Return the records with a reason, as dead letters in their order; a Reason also names its field."""
    bad = sorted(reasons)
    fields = [getattr(reasons[at], "field", None) for at in bad]
    letters = records.take(pa.array(bad)).append_column(
        ERROR_COLUMN, pa.array([str(reasons[at]) for at in bad], pa.string())
    )
    return letters.append_column(FIELD_COLUMN, pa.array(fields, pa.string()))


def join_letters(*letters: Records | None) -> Records | None:
    """Return dead letters of several causes as one table, None for none."""
    found = [some for some in letters if some is not None]
    return pa.concat_tables(found, promote_options="default") if found else None


def scatter_values(values: Array, present: Array) -> Array:
    """Return the values at the places of a mask, null elsewhere."""
    mask = present.to_numpy(zero_copy_only=False)
    places = np.cumsum(mask) - 1
    return values.take(pa.array(places, mask=~mask))


def convert_in_parts(values: Array, mask: Array, convert: Any) -> tuple[Array, dict[int, str]]:
    """Convert the values that a mask selects and the others apart, and join both in their order."""
    selected = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    others = np.flatnonzero(~mask.to_numpy(zero_copy_only=False))
    order = np.concatenate([selected, others])
    parts = [convert(values.take(pa.array(at))) for at in (selected, others)]
    errors = {
        int(at[row]): text
        for at, (_, reasons) in zip((selected, others), parts, strict=True)
        for row, text in reasons.items()
    }
    return pa.concat_arrays([part for part, _ in parts]).take(pa.array(np.argsort(order))), errors
