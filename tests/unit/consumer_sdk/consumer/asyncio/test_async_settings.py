"""aiokafka's keyword arguments become settings of the consumer."""

from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk import AsyncConsumer
from trimtab.consumer_sdk.consumer.asyncio.async_settings import translate_settings


def translate(**given: Any) -> dict[str, Any]:
    config = translate_settings(given).config
    assert config.pop("enable.auto.offset.store") is False
    return config


def test_names_and_values_are_translated() -> None:
    """Names of aiokafka, librdkafka and Trimtab may be mixed; None counts as not given."""
    given = {
        "bootstrap_servers": ["a:1", "b:2"],
        "group_id": "shop",
        "auto_offset_reset": "none",
        "fetch_max_wait_ms": 100,
        "sasl_plain_username": "me",
        "client_rack": None,
        "trimtab_write_rate_max_age": "1 min",
        "queued.min.messages": 5,
        "log_level": 3,
    }
    assert translate(**given) == {
        "bootstrap.servers": "a:1,b:2",
        "group.id": "shop",
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 100,
        "sasl.username": "me",
        "trimtab.write.rate.max.age": "1 min",
        "queued.min.messages": 5,
        "log_level": 3,
    }


def test_own_settings_are_kept_apart() -> None:
    """Deserializers and the limit of getmany() are none of the consumer's."""
    settings = translate_settings({"key_deserializer": str, "max_poll_records": 3})
    assert (settings.key_deserializer, settings.value_deserializer, settings.max_poll_records) == (
        str,
        None,
        3,
    )
    with pytest.raises(ValueError, match="max_poll_records"):
        translate_settings({"max_poll_records": 0})


@pytest.mark.parametrize("name", ["ssl_context", "loop", "rebalance_timeout_ms", "enable.auto.offset.store"])
def test_settings_without_a_counterpart_say_what_to_do(name: str) -> None:
    """They are errors by name, as unknown settings are."""
    with pytest.raises(SettingError, match=rf"'{name}' is not a setting .*(leave it out|write)"):
        translate(**{name: object()})


def test_invalid_settings_fail_in_the_constructor() -> None:
    """Before any connection is made, with the nearest name."""
    with pytest.raises(SettingError, match=r"session\.timeout\.ms"):
        AsyncConsumer(bootstrap_servers="a:1", group_id="g", session_timeouts_ms=1)
    with pytest.raises(SettingError, match=r"group\.id"):
        AsyncConsumer(bootstrap_servers="a:1")


@pytest.mark.parametrize(
    ("name", "value"),
    [("auto_offset_reset", "foo"), ("isolation_level", "foo"), ("fetch_min_bytes", "x"), ("group_id", "")],
)
def test_invalid_values_fail_in_the_constructor(name: str, value: str) -> None:
    """Also those that only librdkafka knows; the text has the name."""
    given = {"bootstrap_servers": "a:1", "group_id": "g", name: value}
    with pytest.raises(SettingError, match=name.replace("_", ".")):
        AsyncConsumer("t", **given)


@pytest.mark.parametrize("name", ["key_deserializer", "value_deserializer"])
def test_a_deserializer_is_a_function(name: str) -> None:
    """Its name alone is none; the first record would fail."""
    with pytest.raises(SettingError, match=rf"{name}='json' must be a function"):
        AsyncConsumer("t", bootstrap_servers="a:1", group_id="g", **{name: "json"})


@pytest.mark.parametrize("topic", [["orders"], (), "", b"orders", None])
def test_topics_are_arguments_of_their_own(topic: Any) -> None:
    """A list of them is a usual mistake: the error shows both spellings."""
    with pytest.raises(TypeError, match=r"is no topic name; write AsyncConsumer\('orders', 'clicks'\)"):
        AsyncConsumer(topic, bootstrap_servers="a:1", group_id="g")


def test_the_new_group_protocol_refuses_settings_of_the_classic_one() -> None:
    """Under aiokafka's names, too."""
    with pytest.raises(SettingError, match=r"heartbeat\.interval\.ms needs group\.protocol=classic"):
        AsyncConsumer(
            bootstrap_servers="a:1", group_id="shop", group_protocol="consumer", heartbeat_interval_ms=9
        )
