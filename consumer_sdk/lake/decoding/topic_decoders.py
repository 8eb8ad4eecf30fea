"""Selects the decoder of a topic's values, which splits a batch into rows and dead letters."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.decoding.arrow_json import (
    ArrowJsonDecoder,
    UnprovenJsonError,
    create_arrow_json_decoder,
)
from trimtab.consumer_sdk.lake.decoding.decimal_numbers import has_decimal, may_have_huge_decimal
from trimtab.consumer_sdk.lake.decoding.decoded_records import DecodedRecords
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import SchemaRegistry
from trimtab.consumer_sdk.lake.decoding.spark_decoders import (
    DecodedFrames,
    build_frame,
    decode_values,
    parse_json_schema,
)
from trimtab.consumer_sdk.lake.decoding.value_ranges import ValueRanges
from trimtab.consumer_sdk.lake.file_writers import ARROW_FILE_WRITER, AUTO_FILE_WRITER, SPARK_FILE_WRITER
from trimtab.consumer_sdk.lake.interfaces import Frame, Records
from trimtab.consumer_sdk.lake.settings import DELTA_FORMAT, LakeConfig

log = logging.getLogger("trimtab.lake")

FrameFactory: TypeAlias = Callable[[Records], Frame]
# raises SchemaRegistryUnavailableError, TableSchemaMismatchError
BatchDecoder: TypeAlias = Callable[[Records, FrameFactory], DecodedFrames]


class TopicDecoders:
    """The decoders of a configuration; Spark must run.

    Raises SettingError for DDL that is invalid, or with `lake.file.writer: arrow` not proven for Arrow, and
    for invalid settings of the registry; MissingExtraError.
    """

    def __init__(self, config: LakeConfig) -> None:
        self._config = config
        # before the join: bad DDL must not cost the group a rebalance
        self._arrow_decoders = {ddl: self._create_arrow_decoder(ddl) for ddl in config.schemas.values()}
        self._by_topic: dict[str, BatchDecoder] = {}
        self.registry_decoder: RegistryDecoder | None = None  # one: its schemas serve every topic
        if config.registry_settings:
            registry = SchemaRegistry(config.registry_settings)
            self.registry_decoder = RegistryDecoder(registry, config.decoder, config.ranges)

    def decoder_for(self, topic: str) -> BatchDecoder:
        """Return the decoder of a topic, the same one at each call."""
        known = self._by_topic.get(topic)
        return known or self._by_topic.setdefault(topic, self._create_decoder(topic))  # by several threads

    def _create_decoder(self, topic: str) -> BatchDecoder:
        if self.registry_decoder is not None:
            ranges = ranges_for(self._config, self._config.table_names.table_for(topic))
            return use_arrow_decoder(self.registry_decoder.decode_batch, ranges)
        ddl = self._config.schema_for(topic)
        if ddl is None:
            return keep_raw
        by_arrow = self._arrow_decoders[ddl]
        if by_arrow is None:
            return create_json_decoder(ddl)
        spark_writes = self._config.session.file_writer == AUTO_FILE_WRITER
        return create_json_decoder(ddl, by_arrow.for_topic(topic), spark_writes=spark_writes)

    def _create_arrow_decoder(self, ddl: str) -> ArrowJsonDecoder | None:
        """Check a schema; return a decoder of it, None if Spark parses its JSON."""
        parse_json_schema(ddl)
        writer = self._config.session.file_writer
        has_own_decoders = self._config.changes is not None  # those of changes
        if writer == SPARK_FILE_WRITER or has_own_decoders:
            return None
        try:
            return create_arrow_json_decoder(ddl, SparkSession.active(), self._config.limits.batch_bytes)
        except UnprovenJsonError as error:
            if writer == ARROW_FILE_WRITER:
                raise SettingError(f"{error}: set lake.file.writer=spark") from None
            log.info("%s: Spark parses the JSON of this schema and writes its files: %s", error, ddl)
            return None


def ranges_for(config: LakeConfig, table: str) -> ValueRanges:
    """Return the ranges of a topic table's decoded values."""
    if config.session.format != DELTA_FORMAT or config.transform is not None:  # it may change them
        return config.ranges
    spec = config.partitioning.spec_for(table, is_topic_table=True)
    columns = frozenset(part.column.lower() for part in spec if part.transform == "identity")
    return replace(config.ranges, partition_columns=columns)


def keep_raw(records: Records, to_frame: FrameFactory) -> DecodedFrames:
    """Return the records as they are."""
    return DecodedFrames(to_frame(records), None)


def create_json_decoder(
    ddl: str, by_arrow: ArrowJsonDecoder | None = None, *, spark_writes: bool = False
) -> BatchDecoder:
    """Return the decoder of JSON with these columns; it is `by_arrow` for frames that are Arrow's.

    `spark_writes`: Spark also writes the batches that it parses whole.
    """
    decimals, spark = has_decimal(parse_json_schema(ddl)), SparkSession.active()

    def decode(records: Records, to_frame: FrameFactory) -> DecodedFrames:
        frame = to_frame(records)
        if not isinstance(frame, DataFrame):
            by_spark = by_arrow is None or by_arrow.take_batch_for_spark(records, spark_writes=spark_writes)
            if by_arrow is not None and not (by_spark and spark_writes):
                decode_batch = partial(by_arrow.decode_batch, by_spark=by_spark)
                return use_arrow_decoder(decode_batch)(records, to_frame)  # with Spark's ranges
            frame = build_frame(spark, records)
        finds_huge = decimals and may_have_huge_decimal(records.column("value"))
        return decode_values(frame, ddl, finds_huge=finds_huge)

    return decode


def use_arrow_decoder(
    decode_batch: Callable[[Records], DecodedRecords], ranges: ValueRanges | None = None
) -> BatchDecoder:
    """Return the decoder of a batch by a function that decodes Arrow tables, in these ranges."""

    def decode(records: Records, to_frame: FrameFactory) -> DecodedFrames:
        decoded = decode_batch(records)
        if ranges is not None:
            decoded = ranges.check_records(decoded)
        letters = None if decoded.dead_letters is None else to_frame(decoded.dead_letters)
        return DecodedFrames(to_frame(decoded.rows), letters)

    return decode
