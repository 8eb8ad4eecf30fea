"""Topics with unique names on a broker, and streams of records in them."""

import itertools
import random
import secrets
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # as exported for type checkers

from trimtab.common.errors import PeerError
from trimtab.common.units import format_count

REQUEST_TIMEOUT_S: Final = 30.0
MAX_NAME_LENGTH: Final = 60  # of the part that names the test
KEY_SKEW: Final = 1.2  # Pareto's exponent: a few keys have most records, as in real streams

_RUN: Final = secrets.token_hex(3)
_NUMBERS: Final = itertools.count(1)


class ProducedRecord(NamedTuple):
    """A record that the broker has acknowledged."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes


def make_unique_name(base: str) -> str:
    """Return a name for a topic or group: the base, in allowed characters, and a number of this run."""
    words = "".join(c if c.isalnum() else "-" for c in base)[:MAX_NAME_LENGTH]
    return f"{words}-{_RUN}-{next(_NUMBERS)}"


class KafkaTopics:
    """Creates topics and fills them; `base` begins the topics' names."""

    def __init__(self, bootstrap: str, base: str) -> None:
        self.bootstrap = bootstrap
        self._base = base

    def __call__(self, partitions: int = 4, **config: str) -> str:
        """Create a topic and return its name, as `create` does."""
        return self.create(partitions, **config)

    def create(self, partitions: int = 4, **config: str) -> str:
        """Create a topic and return its name; underscores in `config` stand for dots.

        Raises confluent-kafka's KafkaException.
        """
        name = f"{make_unique_name(self._base)}-topic"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for created in admin.create_topics([new]).values():
            created.result(REQUEST_TIMEOUT_S)
        return name

    def produce(self, topic: str, records: Iterable[tuple[bytes | None, bytes]]) -> list[ProducedRecord]:
        """Write records of (key, value) and return them in the order of their acknowledgement.

        Raises PeerError if the broker does not acknowledge all of them.
        """
        written: list[ProducedRecord] = []
        failed: list[str] = []

        def report(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(str(error))
            else:
                place = message.topic(), message.partition(), message.offset()
                written.append(ProducedRecord(*place, message.key(), message.value()))

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0})
        for key, value in records:
            producer.produce(topic, value, key, on_delivery=report)
            producer.poll(0)
        if (left := producer.flush(REQUEST_TIMEOUT_S)) or failed:
            lost = format_count(left + len(failed), "record was", "records were")
            raise PeerError(f"{topic}: {lost} not acknowledged; {failed[:1]}")
        return written

    def produce_stream(
        self, topic: str, count: int = 1000, *, keys: int = 50, seed: int = 1
    ) -> list[ProducedRecord]:
        """Write `count` numbered records under skewed keys, the same for the same seed."""
        rng = random.Random(seed)  # noqa: S311 - chance that can be repeated
        drawn = ((int(rng.paretovariate(KEY_SKEW)) - 1) % keys for _ in range(count))
        return self.produce(topic, ((b"key-%d" % key, b"%d" % n) for n, key in enumerate(drawn)))
