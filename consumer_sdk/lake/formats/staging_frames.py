"""Frames that a lake's tables stage, and the choice between Arrow's writer and Spark.

1. A Spark frame is written by Spark, an Arrow table by this process.
2. Where Arrow's writer cannot write a table, or rows of it, it leaves no file behind
   (`ArrowFilesRefusedError`). With `lake.file.writer: auto` Spark then writes the same rows.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from trimtab.consumer_sdk.lake.formats.parquet_writer import ArrowFilesRefusedError
from trimtab.consumer_sdk.lake.model.interfaces import Frame, Records

log = logging.getLogger("trimtab.lake")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StagingFrames:
    """Turns Arrow records into frames."""

    to_frame: Callable[[Records], Frame]
    to_spark_frame: Callable[[Records], Frame]
    falls_back_to_spark: bool
    _reported: set[str] = field(default_factory=set[str])

    def stage(self, table: str, frame: Frame, stage: Callable[[Frame], T]) -> T:
        """Return what `stage` returns, if need be of the frame in Spark. Raises ArrowFilesRefusedError."""
        try:
            return stage(frame)
        except ArrowFilesRefusedError as error:
            if not self.falls_back_to_spark:
                raise
            if table not in self._reported:  # once, not with each flush
                self._reported.add(table)
                log.info("%s: Spark writes its files", error.reason)
        return stage(self.to_spark_frame(frame))
