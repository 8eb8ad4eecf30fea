"""`trimtab ingest`: one process that reads topics and writes lake tables, until it is told to stop.

The order matters: Spark is ready before the group is joined, so that nobody waits for a member that
cannot work; on the way out everything is flushed before the group is left, so that the next owner
begins where this one ended.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.http_server import NO_AUTH, AccessPolicy, load_access_policy
from trimtab.common.suggestions import suggest_name
from trimtab.common.units import parse_rate
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.consumer.fetch_throttle import FetchThrottle
from trimtab.consumer_sdk.consumer.settings import parse_consumer_settings
from trimtab.consumer_sdk.lake import settings as lake_config
from trimtab.consumer_sdk.lake.metrics import LakeMetrics, serve_metrics
from trimtab.consumer_sdk.lake.ports import ConsumedMessage, Lake
from trimtab.consumer_sdk.lake.settings import LakeConfig
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

log = logging.getLogger("trimtab.ingest")

INGEST_FETCH_RECORDS: Final = 5000
METRICS_PORT_SETTING: Final = "trimtab.metrics.port"
METRICS_HOST_SETTING: Final = "trimtab.metrics.host"
METRICS_ACCESS_SETTINGS: Final = (
    "trimtab.metrics.tls.certificate",
    "trimtab.metrics.tls.key",
    "trimtab.metrics.token.file",
)
INGEST_SETTINGS: Final = frozenset(
    {
        "topics",
        "trimtab.throttle",
        METRICS_HOST_SETTING,
        METRICS_PORT_SETTING,
        *METRICS_ACCESS_SETTINGS,
    }
)
MAX_PORT: Final = 65535
_INGEST_DEFAULTS: Final = {"auto.offset.reset": "earliest", "enable.auto.commit": False}


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """A checked configuration; `throttle` is bytes/s, None for no limit.

    `metrics_address` is where they are served, port 0 for a free one; None: nowhere.
    """

    topics: tuple[str, ...]
    consumer_config: Mapping[str, Any]
    lake: LakeConfig
    throttle: float | None = None
    metrics_address: tuple[str, int] | None = None
    metrics_access: AccessPolicy = NO_AUTH

    def __repr__(self) -> str:
        """Show no secret: the consumer's settings stay out."""
        return f"IngestConfig(topics={self.topics!r}, group={self.lake.group!r})"


def parse_ingest_settings(config: Mapping[str, Any]) -> IngestSettings:
    """Check a configuration, all of it. Raises SettingError."""
    whole = {**_INGEST_DEFAULTS, **config}
    lake = lake_config.parse_lake_config(whole)
    consumer = {
        k: v
        for k, v in whole.items()
        if k not in INGEST_SETTINGS and not lake_config.is_lake_setting(k)
    }
    _reject_misspelled_settings(consumer)
    parse_consumer_settings(consumer)
    rate = config.get("trimtab.throttle")
    return IngestSettings(
        topics=_parse_topics(config.get("topics")),
        consumer_config=consumer,
        lake=lake,
        throttle=None
        if rate is None
        else _require_positive_rate(parse_rate(rate, "trimtab.throttle")),
        metrics_address=_parse_metrics_address(config),
        metrics_access=_parse_metrics_access(config),
    )


def run_ingest(
    config: IngestSettings,
    lake: Lake,
    stop: threading.Event,
    *,
    clock: Clock | None = None,
) -> None:
    """Ingest into a lake that is ready until `stop` is set; then flush, and leave the group.

    Raises what `LakeWriter` raises, and SettingError where metrics cannot be served.
    """
    clock, meters = clock or SystemClock(), LakeMetrics()
    throttle = FetchThrottle(clock, config.lake.limits.batch_bytes / 8, config.throttle)
    with (
        ExitStack() as stack,
        Consumer(config.consumer_config, clock=clock) as consumer,
        LakeWriter(consumer, config.lake, lake=lake, clock=clock, metrics=meters) as writer,
    ):
        if config.metrics_address is not None:
            if (
                warning := config.metrics_access.exposure_warning(
                    "/metrics", config.metrics_address[0]
                )
            ) is not None:
                log.warning("%s (%s)", warning, ", ".join(METRICS_ACCESS_SETTINGS))
            url = stack.enter_context(
                serve_metrics(meters, *config.metrics_address, config.metrics_access)
            )
            log.info("metrics at %s", url)
        names = ", ".join(config.topics)
        log.info("Spark is ready; joining group %s, for topics %s", config.lake.group, names)
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
        consumer.consume(0, min(wait, 0.1))


def _record_size(message: ConsumedMessage) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _parse_topics(topics: Any) -> tuple[str, ...]:
    found = [topics] if isinstance(topics, str) else topics
    if not found or not isinstance(found, Iterable):
        raise SettingError(
            '\'topics\' is missing; write a list, like ["orders"], or a pattern, like "^shop[.].*"'
        )
    return tuple(str(topic) for topic in found)


def _parse_metrics_address(config: Mapping[str, Any]) -> tuple[str, int] | None:
    port = config.get(METRICS_PORT_SETTING)
    if port is None:
        return None
    if not str(port).isdecimal() or int(port) > MAX_PORT:
        raise SettingError(f"{METRICS_PORT_SETTING}: {port!r} must be 0 (a free one) to {MAX_PORT}")
    return str(config.get(METRICS_HOST_SETTING, "127.0.0.1")), int(port)


def _parse_metrics_access(config: Mapping[str, Any]) -> AccessPolicy:
    """Return what /metrics asks for. Raises SettingError."""
    files = [
        Path(str(config[name])) if config.get(name) else None for name in METRICS_ACCESS_SETTINGS
    ]
    return load_access_policy(*files)


def _reject_misspelled_settings(consumer: Mapping[str, Any]) -> None:
    """Raise SettingError for a name that is nearly one of ours; the consumer checks its own."""
    for name in consumer:
        hint = suggest_name(name, INGEST_SETTINGS | lake_config.LAKE_SETTING_NAMES)
        if hint and "." not in name:
            raise SettingError(f"{name!r} is not a setting{hint}")


def _require_positive_rate(rate: float) -> float:
    if rate <= 0:
        raise SettingError("trimtab.throttle must be above 0")
    return rate
