"""`trimtab ingest`: reads topics and writes lake tables until SIGTERM or SIGINT."""

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import KafkaException

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SettingError, suggest_name
from trimtab.common.http_server import NO_AUTH, AccessPolicy, load_access_policy
from trimtab.common.kafka_security.preflight import check_connection, diagnose_connection
from trimtab.common.settings.settings_model import (
    ByteRate,
    Parsed,
    SettingsModel,
    TopicList,
    list_settings,
    setting,
    validate_settings,
)
from trimtab.common.telemetry.export import TELEMETRY_SETTING, export_telemetry
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.consumer.fetch_throttle import FetchThrottle
from trimtab.consumer_sdk.errors import BrokerUnreachableError
from trimtab.consumer_sdk.lake import connection
from trimtab.consumer_sdk.lake.interfaces import ConsumedMessage, Lake
from trimtab.consumer_sdk.lake.metrics import LakeMetrics, serve_metrics
from trimtab.consumer_sdk.lake.settings import (
    LAKE_SETTING_NAMES,
    LakeConfig,
    is_lake_setting,
    parse_lake_config,
)
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

log = logging.getLogger("trimtab.ingest")

INGEST_FETCH_RECORDS: Final = 5000
BROKER_SILENCE_NOTICE_S: Final = 3.0  # then the log names the cause of the wait
BROKER_ANSWER_TIMEOUT_S: Final = 10.0  # beyond it: a broker may be starting
ANSWER_WAIT_S: Final = 0.5
MAX_PORT: Final = 65535
_INGEST_DEFAULTS: Final = {"auto.offset.reset": "earliest", "enable.auto.commit": False}


class IngestOptions(SettingsModel, owner="trimtab ingest", separator="."):
    """Settings of `trimtab ingest` only, named as in its configuration file."""

    topics: TopicList = setting(
        'List of topics, or one pattern: `["orders"]`, `"^shop[.].*"`.',
        example='a list, like ["orders"], or a pattern, like "^shop[.].*"',
    )
    trimtab_throttle: ByteRate | None = setting(
        "Throughput limit, to give a consumer a capacity in a demo.", default=None
    )
    trimtab_metrics_port: int | None = setting(
        "Port of `/metrics`; 0 picks a free one.", default=None, default_text="off"
    )
    trimtab_metrics_host: Annotated[str, Parsed(str)] = setting(
        "Address that `/metrics` binds to.", default="127.0.0.1"
    )
    trimtab_metrics_tls_certificate: Path | None = setting(
        "PEM file with the certificate of `/metrics`.", default=None
    )
    trimtab_metrics_tls_key: Path | None = setting("PEM file with its key.", default=None)
    trimtab_metrics_token_file: Path | None = setting(
        "File with the bearer token that `/metrics` requires.", default=None
    )

    def find_problems(self, given: Collection[str]) -> Iterable[str]:
        """Yield settings out of range."""
        del given
        if not self.topics:
            yield 'topics is empty; write a list, like ["orders"], or a pattern, like "^shop.*"'
        if self.trimtab_throttle is not None and self.trimtab_throttle <= 0:
            yield "trimtab.throttle must be above 0"
        port = self.trimtab_metrics_port
        if port is not None and not 0 <= port <= MAX_PORT:
            yield f"{METRICS_PORT_SETTING}: {port} must be 0 (a free one) to {MAX_PORT}"


METRICS_PORT_SETTING: Final = IngestOptions.get_setting_name("trimtab_metrics_port")
METRICS_ACCESS_SETTINGS: Final = tuple(
    IngestOptions.get_setting_name(f"trimtab_metrics_{field}")
    for field in ("tls_certificate", "tls_key", "token_file")
)
INGEST_SETTINGS: Final = frozenset(one.name for one in list_settings(IngestOptions))


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Validated configuration."""

    topics: tuple[str, ...]
    consumer_config: Mapping[str, Any]
    lake: LakeConfig
    throttle: float | None = None  # bytes/s
    metrics_address: tuple[str, int] | None = None  # port 0: a free one; None: not served
    metrics_access: AccessPolicy = NO_AUTH

    def __repr__(self) -> str:
        # Without the consumer's settings, which contain secrets.
        return f"IngestSettings(topics={self.topics!r}, group={self.lake.group!r})"


def parse_ingest_settings(config: Mapping[str, Any]) -> IngestSettings:
    """Validate a configuration; load the files and the transform it names. Raises SettingError."""
    settings = {**_INGEST_DEFAULTS, **config}
    own = {n: v for n, v in settings.items() if n in INGEST_SETTINGS and v is not None}
    consumer = {n: v for n, v in settings.items() if n not in INGEST_SETTINGS and not is_lake_setting(n)}
    _reject_misspelled_settings(consumer)
    options = validate_settings(IngestOptions, own)
    lake = parse_lake_config(settings)
    parse_consumer_settings(consumer)
    lake.table_names.check_collisions(t for t in options.topics if not t.startswith("^"))  # no pattern
    port = options.trimtab_metrics_port
    return IngestSettings(
        topics=options.topics,
        consumer_config=consumer,
        lake=lake,
        throttle=options.trimtab_throttle,
        metrics_address=None if port is None else (options.trimtab_metrics_host, port),
        metrics_access=load_access_policy(
            options.trimtab_metrics_tls_certificate,
            options.trimtab_metrics_tls_key,
            options.trimtab_metrics_token_file,
        ),
    )


def check_broker(config: IngestSettings) -> None:
    """Wait for the answer of a broker, which shows that the address is right.

    Raises BrokerUnreachableError, SaslAuthenticationError, TlsHandshakeError.
    """
    client = connection.extract_connection_settings(config.consumer_config, "the address of a broker")
    check_connection(client)
    # not of an AdminClient: brokers may create the topics that it names
    consumer = DataConsumer({**client, "group.id": config.lake.group, "log_level": 0})
    topic = next((name for name in config.topics if not name.startswith("^")), None)
    try:
        if _is_answered(consumer, topic, BROKER_SILENCE_NOTICE_S):
            return
        address = client.get("bootstrap.servers")
        log.warning("no broker answers at %s yet; waiting %.0f s more", address, BROKER_ANSWER_TIMEOUT_S)
        if not _is_answered(consumer, topic, BROKER_ANSWER_TIMEOUT_S):
            diagnose_connection(client)
            raise BrokerUnreachableError(str(address))
    finally:
        consumer.close()


def _is_answered(consumer: DataConsumer, topic: str | None, timeout: float) -> bool:
    # a signal is handled between two waits
    for _ in range(round(timeout / ANSWER_WAIT_S)):
        with suppress(KafkaException):
            consumer.list_topics(topic, timeout=ANSWER_WAIT_S)
            return True
    return False


def run_ingest(
    config: IngestSettings, lake: Lake, stop: threading.Event, *, clock: Clock | None = None
) -> None:
    """Ingest into a started lake until `stop` is set; then flush and leave the group.

    Raises the errors of `LakeWriter`, and SettingError if /metrics cannot be served.
    """
    clock = clock or SystemClock()
    metrics = LakeMetrics()
    throttle = FetchThrottle(clock, config.lake.limits.batch_bytes / 8, config.throttle)
    with (
        # ended last, so that it exports what the end of the others does
        export_telemetry(
            "trimtab-ingest", metrics.registry, TELEMETRY_SETTING, enabled=config.lake.telemetry
        ),
        ExitStack() as stack,
        Consumer(config.consumer_config, clock=clock) as consumer,
        # Closed before the consumer, which keeps its partitions until the last flush is committed.
        LakeWriter(consumer, config.lake, lake=lake, clock=clock, metrics=metrics) as writer,
    ):
        metrics.watch_leader(consumer.decision_fault)
        if config.metrics_address is not None:
            access = config.metrics_access
            host, port = config.metrics_address
            if (warning := access.exposure_warning("/metrics", host)) is not None:
                log.warning("%s (%s)", warning, ", ".join(METRICS_ACCESS_SETTINGS))
            url = stack.enter_context(serve_metrics(metrics, host, port, access))
            log.info("serving metrics at %s", url)
        names = ", ".join(config.topics)
        # The lake is ready first: a member that cannot write would hold up the group's rebalance.
        log.info("Spark is ready; joining group %s, topics %s", config.lake.group, names)
        if not stop.is_set():
            consumer.subscribe(config.topics, writer.on_assign, writer.on_revoke, writer.on_lost)
        while not stop.is_set():
            _ingest_batch(consumer, writer, throttle, stop)
        log.info(
            "stopping: flushing for up to %.0f s (lake.flush.timeout), then leaving the group",
            config.lake.flush_timeout_s,
        )


def _ingest_batch(
    consumer: Consumer, writer: LakeWriter, throttle: FetchThrottle, stop: threading.Event
) -> None:
    messages = consumer.consume(throttle.limit_records(INGEST_FETCH_RECORDS), timeout=0.2)
    writer.write(messages, stop=stop)
    throttle.record_fetch(sum(_record_size(m) for m in messages), len(messages))
    while (wait := throttle.remaining_wait_s()) > 0 and not stop.is_set():
        consumer.consume(0, min(wait, 0.1))  # serves rebalance callbacks


def _record_size(message: ConsumedMessage) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _reject_misspelled_settings(consumer: Mapping[str, Any]) -> None:
    for name in consumer:
        hint = suggest_name(name, INGEST_SETTINGS | LAKE_SETTING_NAMES)
        if hint and "." not in name:
            raise SettingError(f"{name!r} is not a setting{hint}")
