"""Consumer settings: librdkafka's names for settings of both planes, `trimtab.*` for our own.

`parse_consumer_settings` validates them before any connection is made. librdkafka checks the values
of its remaining settings itself. Secrets may be references (`common.kafka_security.secrets`).
"""

import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from trimtab.common.control_topics.topics import PLAN_TOPIC, WRITE_RATE_TOPIC
from trimtab.common.errors import SettingError, suggest_name
from trimtab.common.kafka_security import client_config
from trimtab.common.kafka_security.secrets import mask_secrets_in_errors, resolve_secrets
from trimtab.common.settings.settings_model import (
    CO_PARTITIONED_EXAMPLE,
    ByteRate,
    Duration,
    Parsed,
    SettingsModel,
    TopicGroups,
    list_settings,
    setting,
    validate_settings,
)
from trimtab.common.settings.shared_defaults import DEFAULT_HEURISTIC
from trimtab.consumer_sdk.client.setting_names import LIBRDKAFKA_SETTINGS, SHARED_SETTINGS

ConsumerConfig: TypeAlias = Mapping[str, Any]
Text = Annotated[str, Parsed(str)]  # YAML reads `group.id: 42` as a number

CLASSIC_PROTOCOL: Final = "classic"
BROKER_ASSIGNED_PROTOCOL: Final = "consumer"
# A lease is a multiple of this: librdkafka's statistics prove answered heartbeats with a delay of four.
STATISTICS_PER_SESSION: Final = 20
MAX_STATISTICS_INTERVAL_MS: Final = 2_000

_ASSIGNED_BY_BROKER: Final = "the broker assigns; leave it out, or set it in the sidecar"
_BROKER_DECIDES: Final = {
    "heartbeat.interval.ms": "the group has consumer.heartbeat.interval.ms; leave it out",
    "partition.assignment.strategy": "the broker assigns, by group.remote.assignor; leave it out",
    "trimtab.capacity": _ASSIGNED_BY_BROKER,
    "trimtab.co.partitioned": _ASSIGNED_BY_BROKER,
    "trimtab.heuristic": _ASSIGNED_BY_BROKER,
    "trimtab.start.at.release": _ASSIGNED_BY_BROKER,
}
_CLASSIC_SETTINGS: Final = frozenset(_BROKER_DECIDES)
# The second one on the way from cooperative-sticky, the third one on the way to KIP-848's protocol.
_ASSIGNOR_LISTS: Final = (("trimtab",), ("trimtab", "cooperative-sticky"), ("cooperative-sticky", "trimtab"))


class ConsumerOptions(SettingsModel, owner="this consumer", separator="."):
    """Settings that the consumer reads itself, under the names that people write."""

    bootstrap_servers: Text = setting("Addresses of the brokers, separated by commas.")
    group_id: Text = setting("Consumer group.")
    trimtab_heuristic: Text = setting(
        "Heuristic that places partitions (`trimtab heuristics` lists them); a sidecar's plan "
        "takes precedence.",
        default=DEFAULT_HEURISTIC,
    )
    trimtab_capacity: ByteRate | None = setting(
        "Throughput that this consumer sustains, like `2.3 MB/s`.", default=None, default_text="the plan's"
    )
    trimtab_instance: Text | None = setting(
        "Name of this consumer: the plan drains it by this name, and it becomes the client id.",
        default=None,
        default_text="`group.instance.id`, `client.id`, `$TRIMTAB_INSTANCE`, host and process id",
    )
    trimtab_co_partitioned: TopicGroups = setting(
        "Groups of topics whose partitions of one number one consumer reads, for joins and state by key "
        "([heuristics](heuristics.md#co-partitioned-topics)); a sidecar's plan takes precedence.",
        default=(),
        example=CO_PARTITIONED_EXAMPLE,
    )
    trimtab_plan_topic: Text = setting('Control topic of the plans; `""` ignores plans.', default=PLAN_TOPIC)
    trimtab_write_rate_topic: Text = setting(
        'Control topic of the write rates; `""` ignores them.', default=WRITE_RATE_TOPIC
    )
    trimtab_write_rate_max_age: Duration = setting(
        "Age beyond which a write rate counts as unknown.", default=600.0
    )
    client_rack: Text | None = setting(
        "Rack of this consumer: it fetches from replicas there, if the brokers allow it, and "
        "heuristics that weigh racks place by it ([racks](rack-awareness.md)).",
        default=None,
        default_text="`$TRIMTAB_RACK`",
    )
    group_instance_id: Text | None = setting(
        "Static membership (KIP-345): `close()` keeps the place in the group, and a restart within "
        "`session.timeout.ms` moves nothing. The others read for an instance that stays away longer, "
        "45 s by default, which is Kafka's; under a sidecar's plan it gets back exactly its partitions when "
        "it returns. To shorten that wait, set `session.timeout.ms` (at least 6 s unless the broker's "
        "`group.min.session.timeout.ms` allows less). Of two consumers with one name the first ends with an "
        "error at its next heartbeat; until then both may read.",
        default=None,
    )
    session_timeout_ms: int = setting("Silence after which the broker removes this consumer.", default=45_000)
    heartbeat_interval_ms: int = setting(
        "Interval of heartbeats. Members learn of a rebalance by a heartbeat, so a short interval "
        "makes handovers short.",
        default=250,  # a handover waits for the next heartbeat twice (KIP-429)
    )
    max_poll_interval_ms: int = setting(
        "Time without a poll after which this consumer leaves the group (KIP-62).", default=300_000
    )
    metadata_max_age_ms: int = setting(
        "Delay until new partitions, and new topics of a pattern, are noticed.", default=30_000
    )
    enable_auto_commit: bool = setting(
        "Commit stored offsets at intervals and before a revocation.", default=True
    )
    auto_commit_interval_ms: int = setting("Interval of automatic commits.", default=5_000)
    enable_auto_offset_store: bool = setting(
        "Store the offset of each record that is returned.", default=True
    )
    fetch_queue_backoff_ms: int = setting(
        "Delay of the next fetch once librdkafka's queue is full. librdkafka's 1000 slows down an "
        "application that takes many records at once, such as a sink.",
        default=20,
    )
    partition_assignment_strategy: Text = setting(
        "`trimtab,cooperative-sticky` while a group is upgraded, `cooperative-sticky,trimtab` while it "
        "changes to `group.protocol=consumer`; else leave it out.",
        default="trimtab",
    )
    trimtab_start_at_release: bool = setting(
        "Begin with a partition that another consumer gives up at that one's last commit, without waiting "
        "for the rebalance's second round; most moves then need none "
        "([design](design.md#reading-before-the-second-round)).",
        default=True,
    )
    group_protocol: Text = setting(
        "`classic`, or `consumer`: KIP-848's protocol, in which the broker assigns "
        "([any client](any-client.md)).",
        default=CLASSIC_PROTOCOL,
    )
    group_remote_assignor: Text | None = setting(
        "With `group.protocol=consumer`, the broker's assignor that this consumer asks for.",
        default=None,
        default_text="the broker's first",
    )
    trimtab_telemetry: bool = setting(
        "Export [traces](telemetry.md) by OpenTelemetry; `trimtab ingest` exports its metrics and logs, too.",
        default=False,
    )

    def find_problems(self, given: Collection[str]) -> Iterable[str]:
        """Yield contradictions between settings."""
        beat, session, poll = self.heartbeat_interval_ms, self.session_timeout_ms, self.max_poll_interval_ms
        for name, value in (("bootstrap.servers", self.bootstrap_servers), ("group.id", self.group_id)):
            if not value:
                yield f"{name!r} is missing; every consumer needs it"
        if self.trimtab_capacity is not None and self.trimtab_capacity <= 0:
            yield "trimtab.capacity must be above 0"
        if _parse_assignors(self.partition_assignment_strategy) not in _ASSIGNOR_LISTS:
            yield (
                f"partition.assignment.strategy={self.partition_assignment_strategy!r} contradicts "
                "trimtab.heuristic, by which this consumer assigns; leave it out, or, while "
                "upgrading a group one by one, write 'trimtab,cooperative-sticky'"
            )
        yield from self._find_protocol_problems(given)
        if beat >= session:
            yield f"heartbeat.interval.ms={beat} must be below session.timeout.ms={session}"
        # The lease of a rebalance lasts max.poll.interval.ms (`membership.lease`).
        if session > poll:
            yield f"session.timeout.ms={session} must not exceed max.poll.interval.ms={poll}"

    def _find_protocol_problems(self, given: Collection[str]) -> Iterable[str]:
        protocol = self.group_protocol.lower()
        if protocol not in (CLASSIC_PROTOCOL, BROKER_ASSIGNED_PROTOCOL):
            yield f"group.protocol={self.group_protocol!r}: write classic or consumer"
        if protocol == BROKER_ASSIGNED_PROTOCOL:
            for name in sorted(_CLASSIC_SETTINGS.intersection(given)):
                yield f"{name} needs group.protocol=classic: {_BROKER_DECIDES[name]}"
        elif self.group_remote_assignor is not None:
            yield "group.remote.assignor needs group.protocol=consumer"


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Validated settings; durations in seconds, `capacity` in bytes/s."""

    group: str
    bootstrap: str
    instance: str
    group_instance_id: str | None  # of a static member (KIP-345)
    rack: str | None
    heuristic: str
    capacity: float | None
    co_partitioned: tuple[tuple[str, ...], ...]
    plan_topic: str
    write_rate_topic: str
    write_rate_max_age: float
    session_timeout: float
    max_poll_interval: float
    auto_commit: bool
    auto_offset_store: bool
    auto_commit_interval: float
    telemetry: bool
    start_at_release: bool
    assignors: tuple[str, ...]  # of the classic protocol, the preferred one first
    librdkafka_config: dict[str, Any]
    joining_config: dict[str, Any] | None  # of a librdkafka that joins the group (KIP-848)
    kafka_python_config: dict[str, Any]
    on_commit: Callable[..., Any] | None = None

    @property
    def is_static(self) -> bool:
        """Whether the membership outlasts a restart (KIP-345)."""
        return self.group_instance_id is not None

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these for clients made from now on."""
        self.librdkafka_config.update({"sasl.username": username, "sasl.password": password})
        self.kafka_python_config.update(sasl_plain_username=username, sasl_plain_password=password)

    def __repr__(self) -> str:
        """Leave out the dictionaries, which contain secrets."""
        return f"ConsumerSettings({self.group!r}, {self.bootstrap!r}, {self.instance!r})"


def parse_consumer_settings(
    config: ConsumerConfig, environ: Mapping[str, str] = os.environ
) -> ConsumerSettings:
    """Validate a configuration. Raises SettingError and UnknownHeuristicError."""
    rack = {"client.rack": environ["TRIMTAB_RACK"]} if environ.get("TRIMTAB_RACK") else {}
    with mask_secrets_in_errors(config, environ):
        return _parse_resolved({**rack, **resolve_secrets(config, environ)}, environ)


def _parse_resolved(config: ConsumerConfig, environ: Mapping[str, str]) -> ConsumerSettings:
    fields = {one.name: one.field_name for one in list_settings(ConsumerOptions)}
    _check_names(config, fields)
    client_config.check_settings(config)
    own = {name: value for name, value in config.items() if name in fields}
    options = validate_settings(ConsumerOptions, own)
    # Here instead of in find_problems, since it has an error class of its own.
    if options.trimtab_heuristic != DEFAULT_HEURISTIC:
        from trimtab.assignor.heuristics import registry  # noqa: PLC0415 - numpy, and all heuristics

        registry.get_installed_heuristic(options.trimtab_heuristic)
    typed = {name: getattr(options, field) for name, field in fields.items()}
    # With our defaults, which differ from librdkafka's in part.
    complete = {**config, **{name: value for name, value in typed.items() if value is not None}}
    instance = str(
        options.trimtab_instance
        or options.group_instance_id
        or config.get("client.id")
        or environ.get("TRIMTAB_INSTANCE")
        or f"{socket.gethostname()}-{os.getpid()}"
    )
    librdkafka_config = _build_librdkafka_config(complete, instance)
    return ConsumerSettings(
        group=options.group_id,
        bootstrap=options.bootstrap_servers,
        instance=instance,
        group_instance_id=options.group_instance_id or None,
        rack=options.client_rack,
        heuristic=options.trimtab_heuristic,
        capacity=options.trimtab_capacity,
        co_partitioned=options.trimtab_co_partitioned,
        plan_topic=options.trimtab_plan_topic,
        write_rate_topic=options.trimtab_write_rate_topic,
        write_rate_max_age=options.trimtab_write_rate_max_age,
        session_timeout=options.session_timeout_ms / 1000,
        max_poll_interval=options.max_poll_interval_ms / 1000,
        auto_commit=options.enable_auto_commit,
        auto_offset_store=options.enable_auto_offset_store,
        auto_commit_interval=options.auto_commit_interval_ms / 1000,
        telemetry=options.trimtab_telemetry,
        start_at_release=options.trimtab_start_at_release,
        assignors=_parse_assignors(options.partition_assignment_strategy),
        librdkafka_config=librdkafka_config,
        joining_config=_build_joining_config(options, librdkafka_config),
        kafka_python_config=_build_kafka_python_config(complete, instance),
        on_commit=config.get("on_commit"),
    )


def _parse_assignors(strategy: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in strategy.split(","))


def _check_names(config: ConsumerConfig, own_names: Iterable[str]) -> None:
    known = {*own_names, *SHARED_SETTINGS, *LIBRDKAFKA_SETTINGS, *client_config.SECURITY_SETTINGS}
    accepted = {*known, *client_config.UNSUPPORTED_SETTINGS}  # check_settings explains these
    for name in config:
        # librdkafka loads its plugins under any name.
        if name not in accepted and not name.startswith("plugin."):
            hint = suggest_name(name, known)
            raise SettingError(f"{name!r} is not a setting of this consumer{hint}")


def _build_librdkafka_config(config: ConsumerConfig, instance: str) -> dict[str, Any]:
    # The data plane never joins and never commits: only the member knows the generation.
    fixed = {"enable.auto.commit": False, "enable.auto.offset.store": False}
    dropped = {"partition.assignment.strategy", "heartbeat.interval.ms"}
    dropped |= {"group.protocol", "group.remote.assignor"}
    dropped |= {name for name in config if name.startswith("trimtab.")} | {"group.instance.id"}
    kept = {name: value for name, value in config.items() if name not in dropped}
    return {"client.id": instance, **client_config.to_librdkafka_config(kept), **fixed}


def _build_joining_config(options: ConsumerOptions, config: ConsumerConfig) -> dict[str, Any] | None:
    if options.group_protocol.lower() != BROKER_ASSIGNED_PROTOCOL:
        return None
    interval = min(options.session_timeout_ms // STATISTICS_PER_SESSION, MAX_STATISTICS_INTERVAL_MS)
    wanted = int(config.get("statistics.interval.ms") or interval)
    optional = {
        "group.instance.id": options.group_instance_id,
        "group.remote.assignor": options.group_remote_assignor,
    }
    return {
        # librdkafka rejects a session timeout: the broker has it
        **{name: value for name, value in config.items() if name != "session.timeout.ms"},
        "group.protocol": BROKER_ASSIGNED_PROTOCOL,
        "statistics.interval.ms": min(wanted, interval),
        **{name: value for name, value in optional.items() if value},
    }


def _build_kafka_python_config(config: ConsumerConfig, instance: str) -> dict[str, Any]:
    shared = {
        kafka_python_name: config[name]
        for name, kafka_python_name in SHARED_SETTINGS.items()
        if config.get(name) is not None
    }
    # librdkafka accepts "1000"; kafka-python compares numbers.
    numbers = {name: int(float(value)) for name, value in shared.items() if name.endswith("_ms")}
    return {
        **shared,
        **numbers,
        **client_config.to_kafka_python_config(config),
        "bootstrap_servers": str(config["bootstrap.servers"]).split(","),
        "client_id": instance,
        "metrics_enabled": False,
        "auto_offset_reset": "earliest",  # kafka-python requires one, although it never fetches
        "allow_auto_create_topics": False,
    }
