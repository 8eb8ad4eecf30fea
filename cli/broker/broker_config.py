"""Configuration files of a single-node broker: properties and logging."""

import base64
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trimtab.broker_plugin.plugin_jar import ASSIGNOR_CLASS

BROKER_HOST: Final = "127.0.0.1"
CONTROLLER_LISTENER: Final = "CONTROLLER"
PLAINTEXT_LISTENER: Final = "PLAINTEXT"

KAFKA_VERSION: Final = "4.4.0"
KAFKA_COORDINATES: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",  # else the broker is silent
)
EXCLUDED_COORDINATES: Final = ("org.apache.kafka:kafka-tools-api",)  # named by kafka_2.13, never published

BROKER_JVM_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # 2.5 s to start instead of 4.2 s; fast enough for a test broker
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
)

# the rest is Kafka's own default
DEFAULT_PROPERTIES: Final[Mapping[str, str]] = {
    "node.id": "1",
    "auto.create.topics.enable": "false",  # a misspelt topic must be an error, not a new topic
    "group.initial.rebalance.delay.ms": "0",  # Kafka waits 3 s for more members of an empty group
    "group.consumer.min.heartbeat.interval.ms": "100",  # 5 s, and short handovers need short intervals
    "group.consumer.min.session.timeout.ms": "1000",  # tests wait for ended sessions
    "group.min.session.timeout.ms": "1000",  # as above
    "log.cleaner.backoff.ms": "1000",  # tests wait for compaction
    "log.cleaner.dedupe.buffer.size": "4194304",  # 128 MB of the heap otherwise
    "metadata.max.idle.interval.ms": "10000",  # a record each 0.5 s is half of what an idle broker computes
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "1",  # Kafka creates 50
    "offsets.topic.replication.factor": "1",  # one node
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}

# the plugin comes first: a group whose members name no assignor has the first one, and a pilot changes none
ASSIGNOR_PROPERTIES: Final[Mapping[str, str]] = {
    "group.consumer.assignors": f"{ASSIGNOR_CLASS},uniform,range"
}

# to standard output, which the supervisor writes to the log file; KafkaRaftServer logs the start
LOG4J_PROPERTIES: Final = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
logger.app.name = kafka.server.KafkaRaftServer
logger.app.level = INFO
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %m (%c{1})%n
"""


def build_properties(
    folder: Path,
    ports: Mapping[str, int],
    protocols: Mapping[str, str],
    extra: Mapping[str, str],
    controller: int = 0,
) -> dict[str, str]:
    """Return the server's properties.

    `ports` and `protocols` map listeners, CONTROLLER included, to ports and security protocols;
    `extra` overrides every property. With `controller`, the controller port of another node, the
    broker joins that cluster and needs its own node.id.
    """
    listeners = {name: f"{name}://{BROKER_HOST}:{port}" for name, port in ports.items()}
    if controller:
        del listeners[CONTROLLER_LISTENER]
    return {
        **DEFAULT_PROPERTIES,
        "process.roles": "broker" if controller else "broker,controller",
        "log.dirs": str(folder / "data"),
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.voters": f"1@{BROKER_HOST}:{controller or ports[CONTROLLER_LISTENER]}",
        "inter.broker.listener.name": PLAINTEXT_LISTENER,
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": ",".join(u for n, u in listeners.items() if n != CONTROLLER_LISTENER),
        **extra,
    }


def write_config_files(folder: Path, values: Mapping[str, str]) -> None:
    """Write server.properties and log4j2.properties into `folder`."""
    lines = [f"{name}={_escape_property(value)}\n" for name, value in sorted(values.items())]
    (folder / "server.properties").write_text("".join(lines), encoding="latin-1")
    (folder / "log4j2.properties").write_text(LOG4J_PROPERTIES)


def build_commands(java: Path, jars: tuple[Path, ...], folder: Path, cluster: str) -> list[list[str]]:
    """Return the commands in order: format the storage unless done, then run the broker."""
    start = [
        *(str(java), *BROKER_JVM_OPTIONS, "-cp", ":".join(map(str, jars))),
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        f"-Djava.io.tmpdir={folder}",  # unpacked native libraries go with the folder
    ]
    server = str(folder / "server.properties")
    format_it = [*start, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", server]
    formatted = (folder / "data" / "meta.properties").exists()
    return [*([] if formatted else [format_it]), [*start, "kafka.Kafka", server]]


def generate_cluster_id() -> str:
    """Return 16 random bytes in base64."""
    # fixed first byte: StorageTool reads a leading dash as an option
    return base64.urlsafe_b64encode(b"T" + secrets.token_bytes(15)).decode().rstrip("=")


def _escape_property(value: str) -> str:
    # as java.util.Properties reads it
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in text)
