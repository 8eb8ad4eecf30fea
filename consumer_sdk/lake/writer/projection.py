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
from trimtab.consumer_sdk.errors import TransformFailed
from trimtab.consumer_sdk.lake.decoding.topic_decoders import Decoder, Framed
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.schema.table_names import check_table, dead_letter
from trimtab.consumer_sdk.lake.settings import Transform
from trimtab.consumer_sdk.lake.spark import jvm_errors


@dataclass(frozen=True, slots=True)
class Shaped:
    """The rows of one batch; `own` is None where the transform gives the own table none.

    `direct`: without a transform every record is one row, of the own table or of the dead letters.
    """

    own: DataFrame | None
    sides: Mapping[str, DataFrame] = field(default_factory=dict[str, DataFrame])
    direct: bool = False

    def left(self, records: int, rows: int) -> list[tuple[str, DataFrame]]:
        """Return the other tables to write, by name, once the own table got `rows` of `records`."""
        return [] if self.direct and records == rows else sorted(self.sides.items())


@dataclass(frozen=True, slots=True)
class Shaping:
    """How the records of one table become rows."""

    table: str
    decoder: Decoder
    transform: Transform | None = None

    def shape(self, records: Records, framed: Framed) -> Shaped:
        """Return each table's rows, lazily; `framed` brings records into Spark.

        Raises TransformFailed, TableMismatch, RegistryUnavailable.
        """
        try:
            decoded = self.decoder(records, framed)
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {self.table}: decoding") from error
        frames = self._transformed(decoded.good)
        if decoded.bad is not None:
            frames[dead_letter(self.table)] = decoded.bad
        return Shaped(frames.pop(self.table, None), frames, direct=self.transform is None)

    def _transformed(self, good: DataFrame) -> dict[str, DataFrame]:
        if self.transform is None:
            return {self.table: good}
        found = self._call(good)
        if isinstance(found, DataFrame):
            return {self.table: found}
        if not isinstance(found, Mapping) or not all(
            isinstance(f, DataFrame) for f in found.values()
        ):
            raise TransformFailed(
                f"table {self.table}: the transform returned {type(found).__name__}; it "
                "must return a DataFrame, or "
                "a dict of table name → DataFrame"
            )
        return {self._full(str(name)): frame for name, frame in found.items()}

    def _call(self, good: DataFrame) -> Any:
        assert self.transform is not None
        try:
            return self.transform(good)
        except TrimtabError:
            raise
        except PySparkException as error:
            line = str(error).strip().splitlines()[0]
            raise TransformFailed(f"table {self.table}: the transform failed: {line}") from error
        except jvm_errors.JvmError as error:
            raise jvm_errors.translate(error, f"table {self.table}: the transform") from error
        except Exception as error:
            raise TransformFailed(
                f"table {self.table}: the transform failed: {type(error).__name__}: {error}"
            ) from error

    def _full(self, name: str) -> str:
        namespace = self.table.rpartition(".")[0]
        return check_table(name if "." in name else f"{namespace}.{name}", "lake.transform")
