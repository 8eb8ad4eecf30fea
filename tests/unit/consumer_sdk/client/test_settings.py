"""Settings are validated before any connection; each error has a remedy."""

from typing import Any

import pytest

from trimtab.common.errors import SettingError, UnknownHeuristicError
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.client.settings import parse_consumer_settings

GOOD = {"bootstrap.servers": "localhost:9092,other:9092", "group.id": "g"}
NEW = {"group.protocol": "consumer"}


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        ({"sesion.timeout.ms": 1}, "did you mean 'session.timeout.ms'"),
        ({"trimtab.capasity": "1 MB/s"}, "did you mean 'trimtab.capacity'"),
        ({"no.such.thing": 1}, "'no.such.thing' is not a setting"),
        ({"trimtab.capacity": "fast"}, 'trimtab.capacity: .*"2.3 MB/s"'),
        ({"trimtab.capacity": "0 MB/s"}, "trimtab.capacity must be above 0"),
        ({"trimtab.heuristic": "mfb"}, "mbf"),
        ({"partition.assignment.strategy": "range"}, "contradicts trimtab.heuristic"),
        ({"group.protocol": "share"}, "group.protocol='share': write classic or consumer"),
        ({"group.remote.assignor": "uniform"}, "group.remote.assignor needs group.protocol=consumer"),
        ({**NEW, "heartbeat.interval.ms": 250}, "the group has consumer.heartbeat.interval.ms"),
        ({**NEW, "trimtab.capacity": "1 MB/s"}, "trimtab.capacity needs group.protocol=classic"),
        ({**NEW, "trimtab.heuristic": "mbf"}, "set it in the sidecar"),
        ({**NEW, "partition.assignment.strategy": "trimtab"}, "group.remote.assignor"),
        ({"heartbeat.interval.ms": 50_000}, "heartbeat.interval.ms=50000 must be below"),
        ({"max.poll.interval.ms": 10_000}, "must not exceed max.poll.interval.ms=10000"),
        ({"session.timeout.ms": "long"}, "session.timeout.ms: write a whole number"),
        ({"enable.auto.commit": "maybe"}, "enable.auto.commit: write true or false"),
        ({"group.id": ""}, "'group.id' is missing"),
    ],
)
def test_an_invalid_setting_is_named_with_a_remedy(invalid: dict[str, Any], message: str) -> None:
    """Unknown, malformed and contradictory settings are SettingErrors with exit code 2."""
    with pytest.raises(SettingError, match=message) as raised:
        parse_consumer_settings({**GOOD, **invalid})
    assert raised.value.exit_code == 2


def test_co_partitioned_topics_are_lists_or_text() -> None:
    """A file has lists; an environment variable or a flag has text."""
    for groups in ("orders,payments", [["orders", "payments"]]):
        settings = parse_consumer_settings({**GOOD, "trimtab.co.partitioned": groups})
        assert settings.co_partitioned == (("orders", "payments"),)
        assert not any(name.startswith("trimtab.") for name in settings.librdkafka_config)


def test_an_unknown_heuristic_is_its_own_error() -> None:
    """A program can distinguish an unknown heuristic from other errors."""
    with pytest.raises(UnknownHeuristicError):
        parse_consumer_settings({**GOOD, "trimtab.heuristic": "besst"})


def test_librdkafka_checks_its_own_values() -> None:
    """A value that librdkafka rejects is a SettingError, too."""
    with pytest.raises(SettingError, match=r"auto\.offset\.reset"):
        Consumer({**GOOD, "auto.offset.reset": "sometimes"})


def test_reconnect_backoff_reaches_both_planes() -> None:
    """A member that reconnects long after its broker returned is removed from the group."""
    settings = parse_consumer_settings({**GOOD, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500})
    assert settings.librdkafka_config["reconnect.backoff.max.ms"] == 500
    assert settings.kafka_python_config["reconnect_backoff_ms"] == 50
    assert settings.kafka_python_config["reconnect_backoff_max_ms"] == 500


def test_security_reaches_both_planes() -> None:
    """TLS and SASL settings go to librdkafka unchanged, and translated to kafka-python."""
    settings = parse_consumer_settings(
        {
            **GOOD,
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "u",
            "sasl.password": "${env:KAFKA_PASSWORD}",
            "ssl.endpoint.identification.algorithm": "none",
        },
        {"KAFKA_PASSWORD": "secret"},
    )
    assert settings.librdkafka_config["sasl.password"] == "secret"
    assert settings.librdkafka_config["security.protocol"] == "sasl_ssl"
    control = settings.kafka_python_config
    assert control["security_protocol"] == "SASL_SSL"
    assert control["sasl_plain_password"] == "secret"  # noqa: S105 - a test's
    assert not control["ssl_context"].check_hostname
    assert "secret" not in repr(settings)


def test_tokens_reach_both_planes() -> None:
    """librdkafka and kafka-python both call the application's oauth_cb."""

    def tokens(config: str) -> tuple[str, float]:
        return f"token for {config}", 1e12

    oauth = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": tokens}
    settings = parse_consumer_settings({**GOOD, **oauth, "sasl.oauthbearer.config": "scope=x"})
    assert settings.librdkafka_config["oauth_cb"] is tokens
    provider = settings.kafka_python_config["sasl_oauth_token_provider"]
    assert provider.token() == "token for scope=x"
    assert provider.extensions() == {}


def test_the_data_plane_never_joins_or_commits() -> None:
    """librdkafka gets no setting that would let it act for the group."""
    settings = parse_consumer_settings({**GOOD, "enable.auto.commit": True, "group.instance.id": "static-1"})
    assert settings.librdkafka_config["enable.auto.commit"] is False
    assert settings.librdkafka_config["enable.auto.offset.store"] is False
    assert "group.instance.id" not in settings.librdkafka_config
    assert settings.kafka_python_config["group_instance_id"] == "static-1"


def test_librdkafka_joins_only_by_the_new_protocol() -> None:
    """It rejects the settings of the classic one, and proves heartbeats by its statistics."""
    config = {
        **GOOD,
        **NEW,
        "session.timeout.ms": 6000,
        "group.instance.id": "a",
        "group.remote.assignor": "range",
    }
    settings = parse_consumer_settings(config)
    assert settings.joining_config is not None
    assert {*settings.joining_config.items()} - {*settings.librdkafka_config.items()} == {
        "group.protocol": "consumer",
        "group.instance.id": "a",
        "group.remote.assignor": "range",
        "statistics.interval.ms": 300,
    }.items()
    assert settings.session_timeout == 6
    assert not {"session.timeout.ms", "heartbeat.interval.ms"} & {*settings.joining_config}
    assert "group.protocol" not in settings.librdkafka_config
    assert parse_consumer_settings(GOOD).joining_config is None
    more = parse_consumer_settings({**GOOD, **NEW, "statistics.interval.ms": 100}).joining_config
    assert more is not None
    assert more["statistics.interval.ms"] == 100


@pytest.mark.parametrize(
    ("config", "environ", "rack"),
    [
        ({"client.rack": "a"}, {"TRIMTAB_RACK": "b"}, "a"),
        ({}, {"TRIMTAB_RACK": "b"}, "b"),
        ({}, {"TRIMTAB_RACK": ""}, None),
        ({}, {}, None),
    ],
)
def test_the_rack_reaches_both_planes(
    config: dict[str, str], environ: dict[str, str], rack: str | None
) -> None:
    """The setting precedes the environment; librdkafka fetches by it, the group gets it."""
    settings = parse_consumer_settings({**GOOD, **config}, environ)
    assert settings.rack == rack
    assert (
        settings.librdkafka_config.get("client.rack")
        == settings.kafka_python_config.get("client_rack")
        == rack
    )


@pytest.mark.parametrize(
    ("config", "environ", "instance"),
    [
        ({"trimtab.instance": "a", "client.id": "b"}, {"TRIMTAB_INSTANCE": "c"}, "a"),
        ({"client.id": "b"}, {"TRIMTAB_INSTANCE": "c"}, "b"),
        ({}, {"TRIMTAB_INSTANCE": "c"}, "c"),
    ],
)
def test_the_instance_name_has_an_order_of_sources(
    config: dict[str, str], environ: dict[str, str], instance: str
) -> None:
    """The setting precedes the client id, which precedes the environment."""
    assert parse_consumer_settings({**GOOD, **config}, environ).instance == instance
    assert parse_consumer_settings({**GOOD, **config}, environ).kafka_python_config["client_id"] == instance
