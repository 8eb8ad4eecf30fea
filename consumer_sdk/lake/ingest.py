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
from trimtab.common.http_server import OPEN, Guard, guard
from trimtab.common.units import parse_rate
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.consumer.fetch_throttle import Throttle
from trimtab.consumer_sdk.consumer.settings import nearest, parse
from trimtab.consumer_sdk.lake import settings as lake_config
from trimtab.consumer_sdk.lake.metrics import Meters, served
from trimtab.consumer_sdk.lake.ports import CrashPoint, Lake, Message
from trimtab.consumer_sdk.lake.settings import LakeConfig
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

log = logging.getLogger("trimtab.ingest")

FETCH: Final = 5000
METRICS_PORT: Final = "trimtab.metrics.port"
METRICS_HOST: Final = "trimtab.metrics.host"
METRICS_GUARD: Final = (
    "trimtab.metrics.tls.certificate",
    "trimtab.metrics.tls.key",
    "trimtab.metrics.token.file",
)
OWN: Final = frozenset({"topics", "trimtab.throttle", METRICS_HOST, METRICS_PORT, *METRICS_GUARD})
LAST_PORT: Final = 65535
_DEFAULTS: Final = {"auto.offset.reset": "earliest", "enable.auto.commit": False}


@dataclass(frozen=True, slots=True)
class IngestConfig:
    """A checked configuration; `throttle` is bytes/s, None for no limit.

    `metrics` is where they are served, port 0 for a free one; None: nowhere.
    """

    topics: tuple[str, ...]
    consumer: Mapping[str, Any]
    lake: LakeConfig
    throttle: float | None = None
    metrics: tuple[str, int] | None = None
    guard: Guard = OPEN

    def __repr__(self) -> str:
        """Show no secret: the consumer's settings stay out."""
        return f"IngestConfig(topics={self.topics!r}, group={self.lake.group!r})"


def settings(config: Mapping[str, Any]) -> IngestConfig:
    """Check a configuration, all of it. Raises SettingError."""
    whole = {**_DEFAULTS, **config}
    lake = lake_config.parse(whole)
    consumer = {k: v for k, v in whole.items() if k not in OWN and not lake_config.ours(k)}
    _suggest(consumer)
    parse(consumer)
    rate = config.get("trimtab.throttle")
    return IngestConfig(
        topics=_topics(config.get("topics")),
        consumer=consumer,
        lake=lake,
        throttle=None if rate is None else _positive(parse_rate(rate, "trimtab.throttle")),
        metrics=_metrics(config),
        guard=_guard(config),
    )


def run(
    config: IngestConfig,
    lake: Lake,
    stop: threading.Event,
    *,
    clock: Clock | None = None,
    crash: CrashPoint = lambda step: None,  # noqa: ARG005 - the hook that tests fill
) -> None:
    """Ingest into a lake that is ready until `stop` is set; then flush, and leave the group.

    Raises what `LakeWriter` raises, and SettingError where metrics cannot be served.
    """
    clock, meters = clock or SystemClock(), Meters()
    throttle = Throttle(clock, config.lake.limits.bytes / 8, config.throttle)
    with (
        ExitStack() as stack,
        Consumer(config.consumer, clock=clock) as consumer,
        LakeWriter(
            consumer, config.lake, lake=lake, clock=clock, crash=crash, meters=meters
        ) as writer,
    ):
        if config.metrics is not None:
            if (warning := config.guard.warning("/metrics", config.metrics[0])) is not None:
                log.warning("%s (%s)", warning, ", ".join(METRICS_GUARD))
            url = stack.enter_context(served(meters, *config.metrics, config.guard))
            log.info("metrics at %s", url)
        names = ", ".join(config.topics)
        log.info("Spark is ready; joining group %s, for topics %s", config.lake.group, names)
        if not stop.is_set():
            consumer.subscribe(config.topics, writer.on_assign, writer.on_revoke, writer.on_lost)
        while not stop.is_set():
            _turn(consumer, writer, throttle)
        log.info("stopping: flushing what is left, then leaving the group")


def _turn(consumer: Consumer, writer: LakeWriter, throttle: Throttle) -> None:
    messages = consumer.consume(throttle.batch(FETCH), timeout=0.2)
    writer.write(messages)
    throttle.take(sum(_size(m) for m in messages), len(messages))
    while (wait := throttle.wait()) > 0:
        consumer.consume(0, min(wait, 0.1))


def _size(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _topics(topics: Any) -> tuple[str, ...]:
    found = [topics] if isinstance(topics, str) else topics
    if not found or not isinstance(found, Iterable):
        raise SettingError(
            '\'topics\' is missing; write a list, like ["orders"], or a pattern, like "^shop[.].*"'
        )
    return tuple(str(topic) for topic in found)


def _metrics(config: Mapping[str, Any]) -> tuple[str, int] | None:
    port = config.get(METRICS_PORT)
    if port is None:
        return None
    if not str(port).isdecimal() or int(port) > LAST_PORT:
        raise SettingError(f"{METRICS_PORT}: {port!r} must be 0 (a free one) to {LAST_PORT}")
    return str(config.get(METRICS_HOST, "127.0.0.1")), int(port)


def _guard(config: Mapping[str, Any]) -> Guard:
    """Return what /metrics asks for. Raises SettingError."""
    files = [Path(str(config[name])) if config.get(name) else None for name in METRICS_GUARD]
    return guard(*files)


def _suggest(consumer: Mapping[str, Any]) -> None:
    """Raise SettingError for a name that is nearly one of ours; the consumer checks its own."""
    for name in consumer:
        hint = nearest(name, OWN | lake_config.KNOWN)
        if hint and "." not in name:
            raise SettingError(f"{name!r} is not a setting{hint}")


def _positive(rate: float) -> float:
    if rate <= 0:
        raise SettingError("trimtab.throttle must be above 0")
    return rate
