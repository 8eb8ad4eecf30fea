"""Selects the decoder of a topic's values, which splits a batch into rows and dead letters."""

from collections.abc import Callable
from typing import TypeAlias

from trimtab.consumer_sdk.lake.decoding.decimal_numbers import has_decimal, may_have_huge_decimal
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import SchemaRegistry
from trimtab.consumer_sdk.lake.decoding.spark_decoders import DecodedFrames, decode_values, parse_json_schema
from trimtab.consumer_sdk.lake.interfaces import Frame, Records
from trimtab.consumer_sdk.lake.settings import LakeConfig

FrameFactory: TypeAlias = Callable[[Records], Frame]
# raises SchemaRegistryUnavailableError, TableSchemaMismatchError
BatchDecoder: TypeAlias = Callable[[Records, FrameFactory], DecodedFrames]


class TopicDecoders:
    """The decoders of a configuration; Spark must run.

    Raises SettingError for invalid DDL and invalid settings of the registry, MissingExtraError.
    """

    def __init__(self, config: LakeConfig) -> None:
        for ddl in config.schemas.values():
            parse_json_schema(ddl)  # before the join: a bad one must not cost the group a rebalance
        self._config = config
        self.registry_decoder: RegistryDecoder | None = None  # one: its schemas serve every topic
        if config.registry_settings:
            self.registry_decoder = RegistryDecoder(SchemaRegistry(config.registry_settings), config.decoder)

    def decoder_for(self, topic: str) -> BatchDecoder:
        """Return the decoder of a topic."""
        if self.registry_decoder is not None:
            return create_registry_decoder(self.registry_decoder)
        return create_json_decoder(self._config.schema_for(topic))


def create_json_decoder(ddl: str | None) -> BatchDecoder:
    """Return the decoder for JSON with these columns; None: raw."""
    decimals = ddl is not None and has_decimal(parse_json_schema(ddl))

    def decode(records: Records, to_frame: FrameFactory) -> DecodedFrames:
        finds_huge = decimals and may_have_huge_decimal(records.column("value"))
        return decode_values(to_frame(records), ddl, finds_huge=finds_huge)

    return decode


def create_registry_decoder(registry_decoder: RegistryDecoder) -> BatchDecoder:
    """Return the decoder for values of a schema registry."""

    def decode(records: Records, to_frame: FrameFactory) -> DecodedFrames:
        decoded = registry_decoder.decode_batch(records)
        letters = None if decoded.dead_letters is None else to_frame(decoded.dead_letters)
        return DecodedFrames(to_frame(decoded.rows), letters)

    return decode
