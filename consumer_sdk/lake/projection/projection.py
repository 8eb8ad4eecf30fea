"""Records of a batch to rows of each table: decode, then apply the user's transform.

A transform maps the decoded frame to a frame (rows of the topic table) or to a dict of table name →
frame. In the dict, a name without a dot lies in the topic table's namespace. A topic table missing
from the dict gets no rows and still keeps the offsets (`table_offsets`, rule 3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from trimtab.common.errors import TrimtabError
from trimtab.common.kafka_security.secrets import mask_passwords
from trimtab.consumer_sdk.errors import TransformError
from trimtab.consumer_sdk.lake.decoding.frame_ranges import limit_frame
from trimtab.consumer_sdk.lake.model.interfaces import Frame, Records
from trimtab.consumer_sdk.lake.model.table_names import check_row_table_name, dead_letter_table
from trimtab.consumer_sdk.lake.options.settings import Transform
from trimtab.consumer_sdk.lake.projection.topic_decoders import BatchDecoder, FrameFactory
from trimtab.consumer_sdk.lake.schema.record_columns import (
    RESERVED_COLUMNS,
    find_name_problem,
    split_unreadable,
)
from trimtab.consumer_sdk.lake.spark import jvm_errors


@dataclass(frozen=True, slots=True)
class ProjectedRows:
    """Rows of one batch."""

    topic_table: Frame | None  # None: the transform returns no rows for it
    side_tables: Mapping[str, Frame] = field(default_factory=dict[str, Frame])
    one_row_per_record: bool = False  # in the topic table or as a dead letter

    def remaining_tables(self, records: int, rows: int) -> list[tuple[str, Frame]]:
        """Return the side tables to write, by name, after staging `rows` of `records`."""
        # Rows = records leaves no dead letters: their frame need not be evaluated.
        return [] if self.one_row_per_record and records == rows else sorted(self.side_tables.items())


@dataclass(frozen=True, slots=True)
class TableProjection:
    """Projection of one topic table's records."""

    table: str
    decoder: BatchDecoder
    transform: Transform | None = None
    nulls_outside: bool = False  # values of the transform outside the range of their type; False: it fails

    def project_records(self, records: Records, to_frame: FrameFactory) -> ProjectedRows:
        """Return each table's rows, evaluated lazily; `to_frame` makes a frame of Arrow records.

        Raises TransformError, TableSchemaMismatchError, SchemaRegistryUnavailableError.
        """
        readable, unreadable = split_unreadable(records)
        with jvm_errors.translate_errors(f"table {self.table}: decoding"):
            decoded = self.decoder(readable, to_frame)
            letters = _join_letters(decoded.dead_letters, unreadable, to_frame)
        frames = self._apply_transform(decoded.rows)
        if letters is not None:
            frames[dead_letter_table(self.table)] = letters
        return ProjectedRows(frames.pop(self.table, None), frames, one_row_per_record=self.transform is None)

    def _apply_transform(self, decoded: DataFrame) -> dict[str, DataFrame]:
        if self.transform is None:
            return {self.table: decoded}
        result = self._call_transform(decoded)
        if isinstance(result, DataFrame):
            result = {self.table: result}
        if not isinstance(result, Mapping) or not all(isinstance(f, DataFrame) for f in result.values()):
            raise TransformError(
                f"table {self.table}: the transform returned {type(result).__name__}; it "
                "must return a DataFrame, or a dict of table name → DataFrame"
            )
        frames = {self._qualify_name(str(name)): frame for name, frame in result.items()}
        for table, frame in frames.items():
            _check_column_names(table, frame.columns)
        return {table: limit_frame(frame, nulls=self.nulls_outside) for table, frame in frames.items()}

    def _call_transform(self, decoded: DataFrame) -> Any:
        assert self.transform is not None
        try:
            return self.transform(decoded)
        except TrimtabError:
            raise
        except PySparkException as error:  # e.g. an unknown column: the transform's fault, not the lake's
            line = mask_passwords(str(error).strip().splitlines()[0])  # the plan follows, in many lines
            text = f"table {self.table}: the transform failed: {line}"
            raise TransformError(text) from jvm_errors.MaskedError(error)
        except (Py4JJavaError, Py4JNetworkError) as error:
            where = f"table {self.table}: the transform"
            raise jvm_errors.to_trimtab_error(error, where) from jvm_errors.MaskedError(error)
        except Exception as error:  # a lost JVM that is not known by its error ends the next flush
            raise TransformError(
                f"table {self.table}: the transform failed: {type(error).__name__}: {error}"
            ) from error

    def _qualify_name(self, name: str) -> str:
        namespace = self.table.rpartition(".")[0]
        return check_row_table_name(name if "." in name else f"{namespace}.{name}", "lake.transform")


def _check_column_names(table: str, columns: Sequence[str]) -> None:
    if reserved := [name for name in columns if name.lower() in RESERVED_COLUMNS]:
        raise TransformError(
            f"table {table}: the transform returned a column {reserved[0]}, a name that Iceberg and Delta "
            "keep for columns of their own: rename it in lake.transform"
        )
    if problem := find_name_problem(map(pa.field, columns, repeat(pa.null())), str):
        raise TransformError(
            f"table {table}: the transform returned {problem}: SQL ignores the case of names"
        )


def _join_letters(letters: Frame | None, unreadable: Records | None, to_frame: FrameFactory) -> Frame | None:
    """Return the decoder's dead letters and the unreadable records, both with the same columns."""
    if unreadable is None:
        return letters
    if letters is None:
        return to_frame(unreadable)
    if isinstance(letters, DataFrame):
        return letters.unionByName(to_frame(unreadable))
    return pa.concat_tables([letters, unreadable], promote_options="permissive")
