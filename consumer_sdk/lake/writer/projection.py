"""From the records of a batch to the rows of each table: decode, then the user's transform.

A transform takes the decoded frame and returns a frame (the rows of the topic's own table) or a
dict of table name → frame. In the dict, a name without a dot lies in the own table's namespace. The
own table may be missing from it: then it gets no rows, but it still keeps the marks (see
`progress`, rule 3).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import TransformError
from trimtab.consumer_sdk.lake.decoding.topic_decoders import BatchDecoder, FrameFactory
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.schema.table_names import check_table_name, dead_letter_table
from trimtab.consumer_sdk.lake.settings import Transform
from trimtab.consumer_sdk.lake.spark import jvm_errors


@dataclass(frozen=True, slots=True)
class ProjectedRows:
    """The rows of one batch; `topic_table` is None where the transform gives the own table none.

    `one_row_per_record`: without a transform every record is one row, of the own table or of the dead letters.
    """

    topic_table: DataFrame | None
    side_tables: Mapping[str, DataFrame] = field(default_factory=dict[str, DataFrame])
    one_row_per_record: bool = False

    def remaining_tables(self, records: int, rows: int) -> list[tuple[str, DataFrame]]:
        """Return the other tables to write, by name, once the own table got `rows` of `records`."""
        return (
            [] if self.one_row_per_record and records == rows else sorted(self.side_tables.items())
        )


@dataclass(frozen=True, slots=True)
class TableProjection:
    """How the records of one table become rows."""

    table: str
    decoder: BatchDecoder
    transform: Transform | None = None

    def project_records(self, records: Records, to_frame: FrameFactory) -> ProjectedRows:
        """Return each table's rows, lazily; `to_frame` brings records into Spark.

        Raises TransformError, TableSchemaMismatchError, SchemaRegistryUnavailableError.
        """
        try:
            decoded = self.decoder(records, to_frame)
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(error, f"table {self.table}: decoding") from error
        frames = self._apply_transform(decoded.rows)
        if decoded.dead_letters is not None:
            frames[dead_letter_table(self.table)] = decoded.dead_letters
        return ProjectedRows(
            frames.pop(self.table, None), frames, one_row_per_record=self.transform is None
        )

    def _apply_transform(self, good: DataFrame) -> dict[str, DataFrame]:
        if self.transform is None:
            return {self.table: good}
        found = self._call_transform(good)
        if isinstance(found, DataFrame):
            return {self.table: found}
        if not isinstance(found, Mapping) or not all(
            isinstance(f, DataFrame) for f in found.values()
        ):
            raise TransformError(
                f"table {self.table}: the transform returned {type(found).__name__}; it "
                "must return a DataFrame, or "
                "a dict of table name → DataFrame"
            )
        return {self._qualify_name(str(name)): frame for name, frame in found.items()}

    def _call_transform(self, good: DataFrame) -> Any:
        assert self.transform is not None
        try:
            return self.transform(good)
        except TrimtabError:
            raise
        except PySparkException as error:
            line = str(error).strip().splitlines()[0]
            raise TransformError(f"table {self.table}: the transform failed: {line}") from error
        except jvm_errors.JVM_ERRORS as error:
            raise jvm_errors.to_trimtab_error(
                error, f"table {self.table}: the transform"
            ) from error
        except Exception as error:
            raise TransformError(
                f"table {self.table}: the transform failed: {type(error).__name__}: {error}"
            ) from error

    def _qualify_name(self, name: str) -> str:
        namespace = self.table.rpartition(".")[0]
        return check_table_name(name if "." in name else f"{namespace}.{name}", "lake.transform")
