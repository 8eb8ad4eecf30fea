"""Selects the decoder of a topic's values, which splits a batch into rows and dead letters."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from trimtab.consumer_sdk.lake.decoding.decoded_records import DecodedRecords
from trimtab.consumer_sdk.lake.decoding.json_decoder import JsonDecoder, parse_json_schema
from trimtab.consumer_sdk.lake.decoding.json_settings import check_timestamp_columns
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import SchemaRegistry
from trimtab.consumer_sdk.lake.decoding.spark_frames import DecodedFrames
from trimtab.consumer_sdk.lake.decoding.value_ranges import ValueRanges
from trimtab.consumer_sdk.lake.model.interfaces import Frame, Records
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, LakeConfig

FrameFactory: TypeAlias = Callable[[Records], Frame]
# raises SchemaRegistryUnavailableError, TableSchemaMismatchError
BatchDecoder: TypeAlias = Callable[[Records, FrameFactory], DecodedFrames]


class TopicDecoders:
    """The decoders of a configuration; Spark must run.

    Raises SettingError for invalid DDL and invalid settings of the registry, MissingExtraError.
    """

    def __init__(self, config: LakeConfig) -> None:
        self._config = config
        # before the join: bad DDL must not cost the group a rebalance
        schemas = {ddl: parse_json_schema(ddl) for ddl in config.schemas.values()}
        check_timestamp_columns(config.timestamp_rules, schemas.values())
        self._json_decoders = {
            ddl: JsonDecoder(
                schema,
                config.timestamp_rules,
                nulls_outside=frozenset(schema.names if config.ranges.nulls else ()),
            )
            for ddl, schema in schemas.items()
        }
        self._by_topic: dict[str, BatchDecoder] = {}
        self.registry_decoder: RegistryDecoder | None = None  # one: its schemas serve every topic
        if config.registry_settings:
            registry = SchemaRegistry(config.registry_settings)
            keys = () if config.changes is None else config.changes.keys.values()
            ranges = replace(config.ranges, key_fields=frozenset(name for key in keys for name in key))
            self.registry_decoder = RegistryDecoder(registry, config.decoder, ranges)

    def decoder_for(self, topic: str) -> BatchDecoder:
        """Return the decoder of a topic, the same one at each call."""
        known = self._by_topic.get(topic)
        return known or self._by_topic.setdefault(topic, self._create_decoder(topic))  # by several threads

    def _create_decoder(self, topic: str) -> BatchDecoder:
        ranges = ranges_for(self._config, self._config.table_names.table_for(topic))
        if self.registry_decoder is not None:
            return use_arrow_decoder(self.registry_decoder.decode_batch, ranges)
        ddl = self._config.schema_for(topic)
        return keep_raw if ddl is None else use_arrow_decoder(self._json_decoders[ddl].decode_batch, ranges)


def ranges_for(config: LakeConfig, table: str) -> ValueRanges:
    """Return the ranges of a topic table's decoded values."""
    if config.transform is not None:  # it may change them
        return config.ranges
    spec = config.partitioning.spec_for(table, is_topic_table=True)
    if config.session.format == DELTA_FORMAT:
        columns = frozenset(part.column.lower() for part in spec if part.transform == "identity")
        return replace(config.ranges, partition_columns=columns)
    widths = {
        (part.column.lower(), part.width) for part in spec if part.width and part.transform == "truncate"
    }
    return replace(config.ranges, truncations=frozenset(widths))


def keep_raw(records: Records, to_frame: FrameFactory) -> DecodedFrames:
    """Return the records as they are."""
    return DecodedFrames(to_frame(records), None)


def use_arrow_decoder(decode_batch: Callable[[Records], DecodedRecords], ranges: ValueRanges) -> BatchDecoder:
    """Return the decoder of a batch by a function that decodes Arrow tables."""

    def decode(records: Records, to_frame: FrameFactory) -> DecodedFrames:
        decoded = ranges.check_records(decode_batch(records))
        letters = None if decoded.dead_letters is None else to_frame(decoded.dead_letters)
        return DecodedFrames(to_frame(decoded.rows), letters)

    return decode
