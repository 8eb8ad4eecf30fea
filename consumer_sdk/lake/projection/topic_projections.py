"""Selects the projection of a topic table: its rows are appended, or its changes applied by key."""

from dataclasses import replace
from functools import partial
from typing import Protocol

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.changes import change_formats
from trimtab.consumer_sdk.lake.changes.change_decoders import ChangeDecoder, RegistryChangeDecoder
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.changes.change_settings import (
    DEBEZIUM,
    EVERY_TOPIC,
    KEYED,
    ChangeFormat,
    ChangeSettings,
)
from trimtab.consumer_sdk.lake.changes.json_change_schemas import create_json_change_decoder
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.options.settings import LakeConfig
from trimtab.consumer_sdk.lake.projection.keyed_projection import KeyedProjection
from trimtab.consumer_sdk.lake.projection.projection import ProjectedRows, TableProjection
from trimtab.consumer_sdk.lake.projection.topic_decoders import FrameFactory, TopicDecoders, ranges_for
from trimtab.consumer_sdk.lake.schema.record_columns import column_name


class BatchProjection(Protocol):
    """Projection of one topic table's records."""

    def project_records(self, records: Records, to_frame: FrameFactory) -> ProjectedRows:
        """Return each table's rows."""
        ...


class TopicProjections:
    """The projections of a configuration; Spark must run. Raises like TopicDecoders."""

    def __init__(self, config: LakeConfig) -> None:
        self._config = config
        self._decoders = TopicDecoders(config)
        if config.changes is not None:
            self._lenient_registry = _create_lenient(self._decoders.registry_decoder, config.changes.format)
            self._check_topics(config.changes)

    def projection_for(self, table: str, topic: str) -> BatchProjection:
        """Return the projection of a table; `topic` is one of its topics. Raises SettingError."""
        config = self._config
        if config.changes is None:
            decode = self._decoders.decoder_for(topic)
            return TableProjection(table, decode, config.transform, config.ranges.nulls)
        rules = KeyRules(
            tuple(map(column_name, config.changes.key_for(topic))),
            config.changes.soft_deletes,
            config.changes.applies_truncations,
        )
        decoder = self._create_change_decoder(topic, config.changes)
        lenient = None
        if config.changes.format != KEYED:  # every change writes all columns
            lenient = self._create_change_decoder(topic, config.changes, is_lenient=True)
        recognize = _select_recognizer(config.changes.format)
        return KeyedProjection(table, decoder, recognize, rules, ranges_for(config, table), lenient)

    def _check_topics(self, changes: ChangeSettings) -> None:
        """Create the decoder of each topic that the settings name, before the join as TopicDecoders."""
        named = self._config.schemas.keys() | changes.keys.keys()
        for topic in sorted(named - {EVERY_TOPIC}) or [EVERY_TOPIC]:
            self._create_change_decoder(topic, changes)

    def _create_change_decoder(
        self, topic: str, changes: ChangeSettings, *, is_lenient: bool = False
    ) -> ChangeDecoder:
        registry_decoder = self._lenient_registry if is_lenient else self._decoders.registry_decoder
        if registry_decoder is not None:
            return RegistryChangeDecoder(registry_decoder)
        ddl = self._config.schema_for(topic)
        if ddl is None:
            raise SettingError(f"lake.schema names no columns for topic {topic!r}; add it, or '*'")
        rules, nulls = self._config.timestamp_rules, self._config.ranges.nulls
        key = changes.key_for(topic)
        return create_json_change_decoder(
            ddl, changes.format, key, rules, nulls_outside=nulls, is_lenient=is_lenient
        )


def _create_lenient(decoder: RegistryDecoder | None, form: ChangeFormat) -> RegistryDecoder | None:
    """Return a decoder of null for values out of range in `before`, or in the row of a mapping."""
    if decoder is None or form == KEYED:
        return None
    field = "before" if isinstance(form, str) else form.row
    is_whole = field is None
    nulls = decoder.ranges.nulls or is_whole
    ranges = replace(decoder.ranges, nulls=nulls, nulls_inexact=is_whole, nulls_within=field)
    return RegistryDecoder(decoder.registry, decoder.kind, ranges)


def _select_recognizer(form: ChangeFormat) -> change_formats.ChangeRecognizer:
    if isinstance(form, str):
        named = {DEBEZIUM: change_formats.recognize_debezium, KEYED: change_formats.recognize_keyed_rows}
        return named[form]
    return partial(change_formats.recognize_mapped_rows, mapping=form)
