"""The configurations of a run: short timeouts, small processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from faults.broker import HEARTBEAT_MS, PARTITIONS, PASSWORD, USER
from faults.schedule import SESSION, Kind
from faults.supervisor import LEAST, MOST
from trimtab.cli.demo.jvm_class_archive import find_archive, jvm_options
from trimtab.consumer_sdk.client.settings import CLASSIC_PROTOCOL

GROUP: Final = "fire"
NAMESPACE: Final = "fire"
TOPICS: Final = "^fire-.*"
CAPACITY: Final = "40 kB/s"


def consumer(protocol: str = CLASSIC_PROTOCOL) -> dict[str, Any]:
    """Return the settings of every member of a group of this protocol, without the broker's address."""
    classic = protocol == CLASSIC_PROTOCOL
    return {
        **({"heartbeat.interval.ms": HEARTBEAT_MS} if classic else {"group.protocol": protocol}),
        "group.id": GROUP,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": int(SESSION * 1000),
        "metadata.max.age.ms": 1000,
        "max.poll.interval.ms": 60_000,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 1000,
    }


def login() -> dict[str, Any]:
    """Return the login of the consumers, whose ACLs a fault takes away."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def rest_catalog(uri: str) -> dict[str, Any]:
    """Return the settings of a REST catalog; none without its address."""
    return {"lake.catalog.type": "rest", "lake.catalog.uri": uri} if uri else {}


def ingest(
    bootstrap: str, folder: Path, table_format: str, stage: str, protocol: str = CLASSIC_PROTOCOL
) -> dict[str, Any]:
    """Return the configuration of the consumers."""
    java = f'{jvm_options(find_archive())} "-Djava.io.tmpdir={folder / "tmp"}"'
    return {
        **consumer(protocol),
        **({"trimtab.capacity": CAPACITY} if protocol == CLASSIC_PROTOCOL else {}),
        "lake.format": table_format,
        "lake.file.writer": stage,
        "bootstrap.servers": bootstrap,  # replaced by each worker's link
        "topics": TOPICS,
        "lake.warehouse": str(folder / "lake"),
        "lake.table": NAMESPACE + ".{topic}",
        "lake.flush.timeout": "10 s",
        "batch.bytes": "2 MB",
        "batch.max.age": "1 s",
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": False,
        "spark.local.dir": str(folder / "tmp"),
        "spark.driver.extraJavaOptions": java,
    }


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """Topic and table of a round."""

    records: str = "append"  # a name of `changes.RECORDS`
    partitions: int = PARTITIONS
    table_settings: Mapping[str, str] = field(default_factory=dict[str, str])
    first_settings: Mapping[str, str] = field(default_factory=dict[str, str])  # of the round's first workers

    @property
    def truncates(self) -> bool:
        """Whether TRUNCATEs are among the records."""
        return self.records == "truncate"

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns by which the round's first workers partition the table that they create."""
        column = {**self.table_settings, **self.first_settings}.get("lake.partition")
        return () if column is None else (column,)

    def allows(self, kind: Kind, *, steered: bool) -> bool:
        """Return whether a kind of fault may be in a round."""
        alone = self.partitions == 1
        return (steered or not kind.steered) and not (alone and kind.needs == "several partitions")


# Of workers with this setting Spark writes every file. Those that replace them only find a table that Arrow
# refuses: they leave its files to Spark, and write those of dead letters from Arrow.
_BY_KEY_COLUMN: Final = {"lake.partition": "region"}
APPENDS: Final = (TopicLayout(),)
UPSERTS: Final = (
    TopicLayout("upsert"),
    TopicLayout("upsert", table_settings={"lake.file.writer": "auto"}, first_settings=_BY_KEY_COLUMN),
    TopicLayout("truncate", 1, {"lake.truncate": "apply"}),
)
LAYOUTS: Final[Mapping[str, tuple[TopicLayout, ...]]] = {"append": APPENDS, "upsert": UPSERTS}
"""Layouts by `lake.write`; rounds take turns."""


def upserts(registry: str) -> dict[str, Any]:
    """Return the settings of changes by key (`faults.changes`), whose schemas a registry has."""
    return {
        "lake.write": "upsert",
        "lake.key": ["id", "region"],
        "lake.decoder": "avro",
        "lake.schema.evolution": "add",
        "schema.registry.url": registry,
    }


def on_object_store(settings: dict[str, Any], store: dict[str, Any]) -> dict[str, Any]:
    """Return the consumers' configuration with the tables on an object store."""
    return {**{name: value for name, value in settings.items() if name != "lake.warehouse"}, **store}


def sidecar(bootstrap: str) -> dict[str, Any]:
    """Return the configuration of the sidecar; it scales with the traffic."""
    return {
        "bootstrap": bootstrap,
        "group": GROUP,
        "capacity": CAPACITY,
        "interval": "500 ms",
        "window": "4 s",
        "min": LEAST,
        "max": MOST,
        "scale-up-policies": 1,
        "scale-down-stabilization-window": "8 s",
        "cooldown": "4 s",
        "catch-up-time": "20 s",
        "backlog-grace": "5 s",
        "offset-reset": "earliest",
        "target": "process",
    }


def qualified_table(topic: str) -> str:
    """Return the name of a topic's table in SQL."""
    return f"{NAMESPACE}.{table(topic)}"


def table(topic: str) -> str:
    """Return the name of a topic's table in the namespace."""
    return topic.replace("-", "_")
