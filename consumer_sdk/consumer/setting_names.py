"""The names that the consumer knows: ours, those of both planes, and those of librdkafka alone."""

from typing import Final

TRIMTAB_SETTINGS: Final = frozenset(
    {
        "trimtab.capacity",
        "trimtab.heuristic",
        "trimtab.instance",
        "trimtab.plan.topic",
        "trimtab.write.rate.max.age",
        "trimtab.write.rate.topic",
    }
)

SHARED_SETTINGS: Final[dict[str, str]] = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "client.id": "client_id",
    "client.rack": "client_rack",
    "group.id": "group_id",
    "group.instance.id": "group_instance_id",
    "session.timeout.ms": "session_timeout_ms",
    "heartbeat.interval.ms": "heartbeat_interval_ms",
    "max.poll.interval.ms": "max_poll_interval_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "retry.backoff.ms": "retry_backoff_ms",
}
"""librdkafka's name → kafka-python's; those of TLS and SASL `security.connection` translates."""

LIBRDKAFKA_SETTINGS: Final = frozenset(
    {
        "allow.auto.create.topics",
        "api.version.request",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "broker.address.family",
        "broker.address.ttl",
        "builtin.features",
        "check.crcs",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "debug",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.metrics.push",
        "enable.partition.eof",
        "error_cb",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.protocol",
        "isolation.level",
        "log_level",
        "log.connection.close",
        "logger",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "message.max.bytes",
        "on_commit",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.message.max.bytes",
        "retry.backoff.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "socket.timeout.ms",
        "statistics.interval.ms",
        "stats_cb",
        "throttle_cb",
        "topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.sparse",
    }
)
