"""Selects the decoder of a topic's values, which splits a batch into rows and dead letters."""

from collections.abc import Callable
from typing import TypeAlias

from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import SchemaRegistry
from trimtab.consumer_sdk.lake.decoding.spark_decoders import DecodedFrames, decode_values, parse_json_schema
from trimtab.consumer_sdk.lake.ports import Frame, Records
from trimtab.consumer_sdk.lake.settings import LakeConfig

FrameFactory: TypeAlias = Callable[[Records], Frame]

BatchDecoder: TypeAlias = Callable[[Records, FrameFactory], DecodedFrames]
"""Decodes a batch; the factory makes a frame of Arrow records.

Raises SchemaRegistryUnavailableError, TableSchemaMismatchError.
"""


class TopicDecoders:
    """The decoders of a configuration.

    Raises SettingError for DDL that Spark cannot read (it must run) and for settings that the
    registry's client refuses, MissingExtraError.
    """

    def __init__(self, config: LakeConfig) -> None:
        for ddl in config.schemas.values():
            parse_json_schema(ddl)  # as soon as there is Spark, before the join
        self._config = config
        self._registry_decoder = (
            RegistryDecoder(SchemaRegistry(config.registry_settings), config.decoder)
            if config.registry_settings
            else None
        )

    def decoder_for(self, topic: str) -> BatchDecoder:
        """Return what decodes a topic's values."""
        if self._registry_decoder is not None:
            return create_registry_decoder(self._registry_decoder)
        return create_json_decoder(self._config.schema_for(topic))


def create_json_decoder(ddl: str | None) -> BatchDecoder:
    """Return the decoder for JSON with these columns; None: raw."""
    return lambda records, framed: decode_values(framed(records), ddl)


def create_registry_decoder(registry_decoder: RegistryDecoder) -> BatchDecoder:
    """Return the decoder for values of a schema registry."""

    def decoder(records: Records, framed: FrameFactory) -> DecodedFrames:
        split = registry_decoder.decode_batch(records)
        return DecodedFrames(
            framed(split.rows), None if split.dead_letters is None else framed(split.dead_letters)
        )

    return decoder
