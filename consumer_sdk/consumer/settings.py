"""The consumer's settings: librdkafka's names for what both planes share, `trimtab.*` for ours.

Checked here, before anything connects: an unknown name is answered with the nearest known one, and
settings that contradict each other are named together. What librdkafka alone knows (a value's
range) it checks itself. Secrets may be references (`security.secrets`).
"""

import difflib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from trimtab.assignor.heuristics import registry
from trimtab.common.control_topics.topics import PLAN_TOPIC, WRITE_RATE_TOPIC
from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection
from trimtab.common.kafka_security.secrets import mask_secrets_in_errors, resolve_secrets
from trimtab.common.units import parse_rate, parse_seconds
from trimtab.consumer_sdk.consumer.setting_names import (
    LIBRDKAFKA_SETTINGS,
    SHARED_SETTINGS,
    TRIMTAB_SETTINGS,
)

ConsumerConfig: TypeAlias = Mapping[str, Any]

_UPGRADE_STRATEGIES: Final = ("trimtab,cooperative-sticky", "trimtab, cooperative-sticky")
_CONSUMER_DEFAULTS: Final[dict[str, Any]] = {
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 250,  # a handover waits for the next heartbeat, twice (KIP-429)
    "metadata.max.age.ms": 30_000,  # how late new partitions and topics of a pattern are noticed
    "max.poll.interval.ms": 300_000,
    "enable.auto.commit": True,
    "enable.auto.offset.store": True,
    "auto.commit.interval.ms": 5_000,
    # librdkafka's second, once its queue is full, starves whoever takes much at a time
    "fetch.queue.backoff.ms": 20,
}


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """A checked configuration; durations in seconds, `capacity` in bytes/s.

    `librdkafka_config` goes to librdkafka, `kafka_python_config` to kafka-python.
    """

    group: str
    bootstrap: str
    instance: str
    is_static: bool  # has a group.instance.id (KIP-345)
    rack: str | None
    heuristic: str
    capacity: float | None
    plan_topic: str
    write_rate_topic: str
    write_rate_max_age: float
    session_timeout: float
    max_poll_interval: float
    auto_commit: bool
    auto_offset_store: bool
    auto_commit_interval: float
    upgrading: bool
    librdkafka_config: dict[str, Any]
    kafka_python_config: dict[str, Any]
    on_commit: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        """Show no secret: the dictionaries stay out."""
        return f"Settings({self.group!r}, {self.bootstrap!r}, {self.instance!r})"


def parse_consumer_settings(
    config: ConsumerConfig, environ: Mapping[str, str] = os.environ
) -> ConsumerSettings:
    """Check a configuration. Raises SettingError, naming the setting and what to write instead."""
    rack = {"client.rack": environ["TRIMTAB_RACK"]} if environ.get("TRIMTAB_RACK") else {}
    with mask_secrets_in_errors(config, environ):
        return _parse_resolved(
            {**_CONSUMER_DEFAULTS, **rack, **resolve_secrets(config, environ)}, environ
        )


def _parse_resolved(config: ConsumerConfig, environ: Mapping[str, str]) -> ConsumerSettings:
    for name in config:
        _check_known(name)
    _check_consistent(config)
    instance = str(
        config.get("trimtab.instance")
        or config.get("group.instance.id")
        or config.get("client.id")
        or environ.get("TRIMTAB_INSTANCE")
        or f"{socket.gethostname()}-{os.getpid()}"
    )
    capacity = config.get("trimtab.capacity")
    heuristic = str(config.get("trimtab.heuristic", registry.DEFAULT_HEURISTIC))
    registry.get_installed_heuristic(heuristic)
    return ConsumerSettings(
        group=str(config["group.id"]),
        bootstrap=str(config["bootstrap.servers"]),
        instance=instance,
        is_static=bool(config.get("group.instance.id")),
        rack=config.get("client.rack"),
        heuristic=heuristic,
        capacity=None
        if capacity is None
        else _require_positive_capacity(parse_rate(capacity, "trimtab.capacity")),
        plan_topic=str(config.get("trimtab.plan.topic", PLAN_TOPIC)),
        write_rate_topic=str(config.get("trimtab.write.rate.topic", WRITE_RATE_TOPIC)),
        write_rate_max_age=parse_seconds(
            config.get("trimtab.write.rate.max.age", "10 min"), "trimtab.write.rate.max.age"
        ),
        session_timeout=_parse_number(config, "session.timeout.ms") / 1000,
        max_poll_interval=_parse_number(config, "max.poll.interval.ms") / 1000,
        auto_commit=_parse_flag(config, "enable.auto.commit"),
        auto_offset_store=_parse_flag(config, "enable.auto.offset.store"),
        auto_commit_interval=_parse_number(config, "auto.commit.interval.ms") / 1000,
        upgrading=config.get("partition.assignment.strategy") in _UPGRADE_STRATEGIES,
        librdkafka_config=_build_librdkafka_config(config, instance),
        kafka_python_config=_build_kafka_python_config(config, instance),
        on_commit=config.get("on_commit"),
    )


def suggest_name(name: str, known: Mapping[str, Any] | set[str] | frozenset[str]) -> str:
    """Return a hint with the known name that is most like this one; empty where none is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _check_known(name: str) -> None:
    every = {
        *TRIMTAB_SETTINGS,
        *SHARED_SETTINGS,
        *LIBRDKAFKA_SETTINGS,
        *connection.SECURITY_SETTINGS,
    }
    if name in every or name in connection.UNSUPPORTED_SETTINGS or name.startswith("plugin."):
        return
    raise SettingError(f"{name!r} is not a setting of this consumer{suggest_name(name, every)}")


def _check_consistent(config: ConsumerConfig) -> None:
    for name in ("bootstrap.servers", "group.id"):
        if not config.get(name):
            raise SettingError(f"{name!r} is missing; every consumer needs it")
    connection.check_settings(config)
    strategy = config.get("partition.assignment.strategy", "trimtab")
    if strategy not in ("trimtab", *_UPGRADE_STRATEGIES):
        raise SettingError(
            f"partition.assignment.strategy={strategy!r} contradicts trimtab.heuristic, by which "
            "this consumer assigns; leave it out, or, while upgrading a group one by one, "
            "write 'trimtab,cooperative-sticky'"
        )
    if str(config.get("group.protocol", "classic")).lower() != "classic":
        raise SettingError(
            "group.protocol='consumer' (KIP-848) has assignors in the broker only; "
            "leave it out: Trimtab uses the classic protocol, which Kafka 4 serves"
        )
    beat, session, poll = (
        _parse_number(config, f"{n}.ms")
        for n in ("heartbeat.interval", "session.timeout", "max.poll.interval")
    )
    if beat >= session:
        raise SettingError(
            f"heartbeat.interval.ms={beat:.0f} must be below session.timeout.ms={session:.0f}"
        )
    if session > poll:
        raise SettingError(
            f"session.timeout.ms={session:.0f} must not exceed max.poll.interval.ms={poll:.0f}"
        )


def _build_librdkafka_config(config: ConsumerConfig, instance: str) -> dict[str, Any]:
    """Return librdkafka's part: it fetches, but never joins and never commits by itself."""
    ours = {"partition.assignment.strategy", "heartbeat.interval.ms", "group.protocol", "on_commit"}
    ours |= {"group.instance.id", "enable.auto.commit", "enable.auto.offset.store"}
    kept = {k: v for k, v in config.items() if k not in TRIMTAB_SETTINGS and k not in ours}
    return {
        "client.id": instance,
        **connection.to_librdkafka_config(kept),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }


def _build_kafka_python_config(config: ConsumerConfig, instance: str) -> dict[str, Any]:
    """Return kafka-python's part, under its own names."""
    renamed = (
        (SHARED_SETTINGS.get(name), value) for name, value in config.items() if value is not None
    )
    translated = {name: value for name, value in renamed if name is not None}
    for name in [n for n in translated if n.endswith("_ms")]:
        translated[name] = int(float(translated[name]))
    return {
        **translated,
        **connection.to_kafka_python_config(config),
        "bootstrap_servers": str(config["bootstrap.servers"]).split(","),
        "client_id": instance,
        "metrics_enabled": False,
        "auto_offset_reset": "earliest",  # never used: this plane does not fetch
        "allow_auto_create_topics": False,
    }


def _parse_number(config: ConsumerConfig, name: str) -> float:
    try:
        return float(config[name])
    except (TypeError, ValueError):
        raise SettingError(f"{name}={config[name]!r} is not a number") from None


def _parse_flag(config: ConsumerConfig, name: str) -> bool:
    value = config[name]
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise SettingError(f"{name}={value!r} must be true or false")


def _require_positive_capacity(capacity: float) -> float:
    if capacity <= 0:
        raise SettingError("trimtab.capacity must be above 0")
    return capacity
