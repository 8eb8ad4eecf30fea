"""Which decoder a topic's values go through: a batch of records becomes frames, good and bad."""

from collections.abc import Callable
from typing import TypeAlias

from trimtab.consumer_sdk.lake.decoding.registry_decoders import Registered
from trimtab.consumer_sdk.lake.decoding.schema_registry import Registry
from trimtab.consumer_sdk.lake.decoding.spark_decoders import Decoded, decode, json_schema
from trimtab.consumer_sdk.lake.ports import Frame, Records
from trimtab.consumer_sdk.lake.settings import LakeConfig

Framed: TypeAlias = Callable[[Records], Frame]

Decoder: TypeAlias = Callable[[Records, Framed], Decoded]
"""Takes a batch and what brings it into Spark. Raises RegistryUnavailable, TableMismatch."""


class Decoding:
    """The decoders of a configuration.

    Raises SettingError for DDL that Spark cannot read (it must run) and for settings that the
    registry's client refuses, MissingExtra.
    """

    def __init__(self, config: LakeConfig) -> None:
        for ddl in config.schemas.values():
            json_schema(ddl)  # as soon as there is Spark, before the join
        self._config = config
        self._registered = (
            Registered(Registry(config.registry), config.decoder) if config.registry else None
        )

    def of(self, topic: str) -> Decoder:
        """Return what decodes a topic's values."""
        if self._registered is not None:
            return by_registry(self._registered)
        return by_schema(self._config.schema(topic))


def by_schema(ddl: str | None) -> Decoder:
    """Return the decoder for JSON with these columns; None: raw."""
    return lambda records, framed: decode(framed(records), ddl)


def by_registry(registered: Registered) -> Decoder:
    """Return the decoder for values of a schema registry."""

    def decoder(records: Records, framed: Framed) -> Decoded:
        split = registered.split(records)
        return Decoded(framed(split.good), None if split.bad is None else framed(split.bad))

    return decoder
