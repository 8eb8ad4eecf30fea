"""Settings of upserts: each mistake is an error with a remedy."""

from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.changes.change_settings import ChangeMapping, ChangeSettings
from trimtab.consumer_sdk.lake.options.settings import parse_lake_config

UPSERT: dict[str, Any] = {
    "group.id": "g",
    "enable.auto.commit": False,
    "lake.warehouse": "lake",
    "lake.decoder": "json",
    "lake.schema": "id BIGINT, region STRING",
    "lake.write": "upsert",
    "lake.key": "id",
}
MAPPING = {"op": "type", "upsert": ["I", "U"], "delete": "D"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"lake.write": "upsrt"}, "did you mean 'upsert'"),
        ({"lake.write": None}, "lake.key: set lake.write=upsert with it"),
        ({"lake.write": None, "lake.key": None, "lake.delete": "soft"}, "lake.delete: set lake.write=upsert"),
        ({"lake.key": None}, "lake.write=upsert needs lake.key"),
        ({"lake.key": []}, "must name something"),
        ({"lake.key": ["id", "id"]}, "each name once"),
        ({"lake.key": "id,"}, "must name something"),
        ({"lake.key": 3}, "is no list of names"),
        ({"lake.decoder": None, "lake.schema": None}, "needs lake.decoder=json .*, avro or protobuf"),
        ({"batch.bytes": "2 GB"}, "batch.bytes: at most 1.0 GB"),
        ({"batch.bytes": 1_000_000_001}, "batch.bytes: at most 1.0 GB"),
        ({"lake.transform": len}, "lake.transform: changes .* omit it"),
        ({"lake.delete": "sof"}, "did you mean 'soft'"),
        ({"lake.truncate": "aply"}, "did you mean 'apply'"),
        ({"lake.truncate": "apply", "lake.delete": "soft"}, "lake.truncate=apply removes rows"),
        ({"lake.truncate": "apply", "lake.changes": "keyed"}, "only its changes truncate"),
        ({"lake.changes": "debezum"}, "is no format of changes; write debezium, keyed"),
        ({"lake.changes": {"op": "t"}}, "is no mapping of changes"),
        ({"lake.changes": {**MAPPING, "rows": "data"}}, "is no mapping of changes"),
        ({"lake.changes": {**MAPPING, "delete": ["I"]}}, "'I' cannot be both"),
        (
            {"lake.tables": {"a": "x.t", "b": "x.t"}, "lake.key": {"a": "id", "b": "region"}},
            "topics of table 'x.t' must have one key, 'b' has another",
        ),
        (
            {"lake.tables": {"a": "x.t", "b": "x.t"}, "lake.truncate": "apply"},
            "several topics have table 'x.t'; with lake.truncate=apply each needs",
        ),
    ],
)
def test_a_bad_setting_is_an_error(change: dict[str, Any], text: str) -> None:
    """The error has the setting's name and what to write."""
    with pytest.raises(SettingError, match=text):
        parse_lake_config(UPSERT | change)


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        ({}, ChangeSettings({"*": ("id",)})),
        ({"lake.key": "region, id"}, ChangeSettings({"*": ("region", "id")})),
        (
            {"lake.key": {"a": "id", "*": ["id", "region"]}, "lake.delete": "soft"},
            ChangeSettings({"a": ("id",), "*": ("id", "region")}, soft_deletes=True),
        ),
        ({"lake.changes": "keyed"}, ChangeSettings({"*": ("id",)}, "keyed")),
        (
            {"lake.changes": {**MAPPING, "row": "data"}},
            ChangeSettings(
                {"*": ("id",)}, ChangeMapping("type", frozenset("IU"), frozenset("D"), row="data")
            ),
        ),
        ({"lake.file.writer": "arrow"}, ChangeSettings({"*": ("id",)})),
    ],
)
def test_upserts_are_resolved(change: dict[str, Any], settings: ChangeSettings) -> None:
    """Keys by topic, the format, and what becomes of deletes."""
    assert parse_lake_config(UPSERT | change).changes == settings


@pytest.mark.parametrize(
    "change",
    [
        {"batch.bytes": 1_000_000_000},
        {"lake.tables": {"a": "x.a", "b": "x.b"}, "lake.truncate": "apply"},
        {"lake.tables": {"a": "x.t", "b": "x.t"}},
    ],
)
def test_what_is_allowed_is_allowed(change: dict[str, Any]) -> None:
    """The largest batch; tables of their own with TRUNCATEs, a shared one without."""
    assert parse_lake_config(UPSERT | change).changes


def test_deletes_remove_rows_and_truncates_do_not_by_default() -> None:
    """The settings that say otherwise are off."""
    for settings in (parse_lake_config(UPSERT).changes, ChangeSettings({"*": ("id",)})):
        assert settings is not None
        assert not settings.soft_deletes
        assert not settings.applies_truncations


def test_a_topic_has_a_key() -> None:
    """Of its own, or that of all others; without one it is named."""
    settings = ChangeSettings({"a": ("id",), "*": ("region",)})
    assert (settings.key_for("a"), settings.key_for("b")) == (("id",), ("region",))
    with pytest.raises(SettingError, match=r"lake.key names no columns for topic 'b'"):
        ChangeSettings({"a": ("id",)}).key_for("b")
