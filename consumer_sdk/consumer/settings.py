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
from trimtab.common.control_topics.values import PLAN_TOPIC, WRITE_SPEED_TOPIC
from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection
from trimtab.common.kafka_security.secrets import as_written, resolved
from trimtab.common.units import parse_rate, parse_seconds
from trimtab.consumer_sdk.consumer.setting_names import DATA_ONLY, OWN, SHARED

Config: TypeAlias = Mapping[str, Any]

_UPGRADE: Final = ("trimtab,cooperative-sticky", "trimtab, cooperative-sticky")
_DEFAULTS: Final[dict[str, Any]] = {
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
class Settings:
    """A checked configuration; durations in seconds, `capacity` in bytes/s.

    `data` goes to librdkafka, `control` to kafka-python.
    """

    group: str
    bootstrap: str
    instance: str
    static: bool  # has a group.instance.id (KIP-345)
    rack: str | None
    heuristic: str
    capacity: float | None
    plan_topic: str
    speed_topic: str
    speed_max_age: float
    session_timeout: float
    max_poll_interval: float
    auto_commit: bool
    auto_store: bool
    auto_commit_interval: float
    upgrading: bool
    data: dict[str, Any]
    control: dict[str, Any]
    on_commit: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        """Show no secret: the dictionaries stay out."""
        return f"Settings({self.group!r}, {self.bootstrap!r}, {self.instance!r})"


def parse(config: Config, environ: Mapping[str, str] = os.environ) -> Settings:
    """Check a configuration. Raises SettingError, naming the setting and what to write instead."""
    rack = {"client.rack": environ["TRIMTAB_RACK"]} if environ.get("TRIMTAB_RACK") else {}
    with as_written(config, environ):
        return _parsed({**_DEFAULTS, **rack, **resolved(config, environ)}, environ)


def _parsed(config: Config, environ: Mapping[str, str]) -> Settings:
    for name in config:
        _known(name)
    _consistent(config)
    instance = str(
        config.get("trimtab.instance")
        or config.get("group.instance.id")
        or config.get("client.id")
        or environ.get("TRIMTAB_INSTANCE")
        or f"{socket.gethostname()}-{os.getpid()}"
    )
    capacity = config.get("trimtab.capacity")
    heuristic = str(config.get("trimtab.heuristic", registry.DEFAULT))
    registry.usable(heuristic)
    return Settings(
        group=str(config["group.id"]),
        bootstrap=str(config["bootstrap.servers"]),
        instance=instance,
        static=bool(config.get("group.instance.id")),
        rack=config.get("client.rack"),
        heuristic=heuristic,
        capacity=None if capacity is None else _positive(parse_rate(capacity, "trimtab.capacity")),
        plan_topic=str(config.get("trimtab.plan.topic", PLAN_TOPIC)),
        speed_topic=str(config.get("trimtab.speed.topic", WRITE_SPEED_TOPIC)),
        speed_max_age=parse_seconds(
            config.get("trimtab.speed.max.age", "10 min"), "trimtab.speed.max.age"
        ),
        session_timeout=_number(config, "session.timeout.ms") / 1000,
        max_poll_interval=_number(config, "max.poll.interval.ms") / 1000,
        auto_commit=_flag(config, "enable.auto.commit"),
        auto_store=_flag(config, "enable.auto.offset.store"),
        auto_commit_interval=_number(config, "auto.commit.interval.ms") / 1000,
        upgrading=config.get("partition.assignment.strategy") in _UPGRADE,
        data=_data(config, instance),
        control=_control(config, instance),
        on_commit=config.get("on_commit"),
    )


def nearest(name: str, known: Mapping[str, Any] | set[str] | frozenset[str]) -> str:
    """Return a hint with the known name that is most like this one; empty where none is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _known(name: str) -> None:
    every = {*OWN, *SHARED, *DATA_ONLY, *connection.NAMES}
    if name in every or name in connection.REFUSED or name.startswith("plugin."):
        return
    raise SettingError(f"{name!r} is not a setting of this consumer{nearest(name, every)}")


def _consistent(config: Config) -> None:
    for name in ("bootstrap.servers", "group.id"):
        if not config.get(name):
            raise SettingError(f"{name!r} is missing; every consumer needs it")
    connection.check(config)
    strategy = config.get("partition.assignment.strategy", "trimtab")
    if strategy not in ("trimtab", *_UPGRADE):
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
        _number(config, f"{n}.ms")
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


def _data(config: Config, instance: str) -> dict[str, Any]:
    """Return librdkafka's part: it fetches, but never joins and never commits by itself."""
    ours = {"partition.assignment.strategy", "heartbeat.interval.ms", "group.protocol", "on_commit"}
    ours |= {"group.instance.id", "enable.auto.commit", "enable.auto.offset.store"}
    kept = {k: v for k, v in config.items() if k not in OWN and k not in ours}
    return {
        "client.id": instance,
        **connection.for_librdkafka(kept),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }


def _control(config: Config, instance: str) -> dict[str, Any]:
    """Return kafka-python's part, under its own names."""
    renamed = ((SHARED.get(name), value) for name, value in config.items() if value is not None)
    translated = {name: value for name, value in renamed if name is not None}
    for name in [n for n in translated if n.endswith("_ms")]:
        translated[name] = int(float(translated[name]))
    return {
        **translated,
        **connection.for_kafka_python(config),
        "bootstrap_servers": str(config["bootstrap.servers"]).split(","),
        "client_id": instance,
        "metrics_enabled": False,
        "auto_offset_reset": "earliest",  # never used: this plane does not fetch
        "allow_auto_create_topics": False,
    }


def _number(config: Config, name: str) -> float:
    try:
        return float(config[name])
    except (TypeError, ValueError):
        raise SettingError(f"{name}={config[name]!r} is not a number") from None


def _flag(config: Config, name: str) -> bool:
    value = config[name]
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise SettingError(f"{name}={value!r} must be true or false")


def _positive(capacity: float) -> float:
    if capacity <= 0:
        raise SettingError("trimtab.capacity must be above 0")
    return capacity
