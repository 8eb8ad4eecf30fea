"""Settings and table names of the lake writer: each mistake is an error with a remedy."""

from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableNameCollisionError
from trimtab.consumer_sdk.lake.model.table_names import TableNames, to_sql_identifier
from trimtab.consumer_sdk.lake.options.settings import parse_lake_config

GOOD: dict[str, Any] = {
    "group.id": "g",
    "enable.auto.commit": False,
    "lake.warehouse": "/tmp/lake",  # noqa: S108 - only a name here
}

JSON = {"lake.decoder": "json", "lake.schema": "ts TIMESTAMP"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"lake.warehous": "x"}, "did you mean 'lake.warehouse'"),
        ({"batch.byte": 1}, "did you mean 'batch.bytes'"),
        ({"batch.bytes": "many"}, "batch.bytes"),
        ({"batch.bytes": 0}, "above 0"),
        ({"batch.memory": 1}, "must not be below"),
        ({"group.id": ""}, "'group.id' is missing"),
        ({"enable.auto.commit": True}, "enable.auto.commit must be false"),
        ({"lake.warehouse": None}, "'lake.warehouse' is missing"),
        ({"lake.decoder": "jsn"}, "did you mean 'json'"),
        ({"lake.decoder": "json"}, "need each other"),
        ({"lake.schema": "id INT"}, "need each other"),
        ({**JSON, "batch.bytes": "2 GB"}, "batch.bytes: at most 1.0 GB with lake.decoder=json"),
        ({"lake.timestamps": "iso"}, "lake.timestamps: set lake.decoder=json"),
        ({**JSON, "lake.timestamps": "epoch-milis"}, "lake.timestamps: .* did you mean 'epoch-millis'"),
        ({**JSON, "lake.timestamps": {"ts": "s"}}, "'s' is no rule; write iso or epoch-seconds or"),
        ({"lake.table": "lake.orders"}, "lacks"),
        ({"lake.table": "{topic}"}, "namespace.name"),
        ({"lake.tables": {"a": "b c.d"}}, r"lake.tables\[a\]"),
        ({"lake.tables": ["a"]}, "not a mapping"),
        ({"lake.transform": "nowhere"}, "module:function"),
        ({"lake.transform": "nowhere.at.all:f"}, "cannot be loaded"),
        ({"lake.catalog.name": "a-b"}, "not a plain name"),
        ({"lake.format": "delt"}, "did you mean 'delta'"),
        ({"lake.file.writer": "arow"}, "did you mean 'arrow'"),
        (
            {"lake.file.writer": "arrow", "lake.transform": len},
            "lake.transform: .* set lake.file.writer=spark",
        ),
        (
            {"lake.file.writer": "arrow", "lake.partition": "topic"},
            "lake.partition: .* lake.file.writer=spark",
        ),
        ({"lake.format": "delta", "lake.catalog.type": "rest"}, "lake.catalog.type: .* Iceberg"),
        (
            {"lake.format": "delta", "spark.sql.parquet.outputTimestampType": "int96"},
            "outputTimestampType=INT96: .* omit the setting",
        ),
    ],
)
def test_a_bad_setting_is_an_error(change: dict[str, Any], text: str) -> None:
    """The error has the setting's name and what to write."""
    with pytest.raises(SettingError, match=text) as caught:
        parse_lake_config(GOOD | change)
    assert caught.value.exit_code == 2


def test_rules_of_timestamps_are_of_all_columns_or_of_one() -> None:
    """Names of columns are those of SQL."""
    rules = {"TS": "epoch-millis", "*": "epoch-micros"}
    assert parse_lake_config(GOOD | JSON).timestamp_rules == {"*": "iso"}
    one = parse_lake_config({**GOOD, **JSON, "lake.timestamps": "epoch-seconds"})
    assert one.timestamp_rules == {"*": "epoch-seconds"}
    by_column = parse_lake_config({**GOOD, **JSON, "lake.timestamps": rules})
    assert by_column.timestamp_rules == {"ts": "epoch-millis", "*": "epoch-micros"}


@pytest.mark.parametrize(
    ("reset", "skips"),
    [("latest", True), ("largest", True), ("end", True), ("earliest", False), (None, False)],
)
def test_a_reset_to_the_end_is_detected(reset: str | None, *, skips: bool) -> None:
    """The writer warns that the consumer would continue at the end of the log."""
    assert parse_lake_config(GOOD | {"auto.offset.reset": reset}).resets_to_end is skips


def test_no_secret_is_printed() -> None:
    """No repr shows tokens and keys of the catalog, of Spark or in the warehouse's URI."""
    secrets = {
        "lake.catalog.token": "hush-1",
        "spark.hadoop.fs.s3a.secret.key": "hush-2",
        "lake.warehouse": "s3a://key:hush-3@bucket/lake",
    }
    config = parse_lake_config(GOOD | secrets)
    assert config.session.catalog == {"token": "hush-1"}
    for shown in (repr(config), repr(config.session), str(config), f"{config.session}"):
        assert "hush" not in shown


def test_topics_of_one_table_need_one_schema() -> None:
    """Topics that share a table cannot be decoded differently."""
    shared = {"lake.tables": {"a": "lake.t", "b": "lake.t"}, "lake.decoder": "json"}
    with pytest.raises(SettingError, match="must have one schema"):
        parse_lake_config(GOOD | shared | {"lake.schema": {"a": "x INT", "b": "x STRING"}})


def test_settings_of_the_consumer_are_ignored() -> None:
    """The flat configuration may contain them."""
    assert parse_lake_config(GOOD | {"bootstrap.servers": "x", "trimtab.capacity": "1 MB/s"}).group == "g"


@pytest.mark.parametrize(
    ("topic", "plain"),
    [("orders", "orders"), ("shop.orders-v2", "shop_orders_v2"), ("2024", "t_2024"), ("ü", "_")],
)
def test_topics_become_plain_identifiers(topic: str, plain: str) -> None:
    """A topic's table name needs no quotes in SQL."""
    assert to_sql_identifier(topic) == plain


def test_topics_share_a_table_only_by_the_mapping() -> None:
    """Any other collision is an error."""
    with pytest.raises(TableNameCollisionError, match=r"'a\.b' and topic|'a-b' and 'a\.b'|'a\.b'"):
        TableNames().check_collisions(["a.b", "a-b"])
    with pytest.raises(TableNameCollisionError):
        TableNames(mapping={"a": "lake.b"}).check_collisions(["a", "b"])
    TableNames(mapping={"a": "lake.t", "b": "lake.t"}).check_collisions(["a", "b"])
