"""Producer of distinguishable records that stores each acknowledgement."""

import random
from collections import Counter
from threading import Event, Thread
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from faults.changes import RECORDS, VERSION_NUMBERS
from history.events import Write
from trimtab.common.librdkafka_settings import IDEMPOTENT_PRODUCER_SETTINGS

RATE_CHANGE_S: Final = 15.0  # seconds between two changes of the rate
RATES: Final = (100.0, 200.0, 400.0)  # records/s
TICK: Final = 0.02


class Traffic:
    """Writes to one topic from a thread until `end`; gives up no record."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, rng: random.Random, write: str = "append"
    ) -> None:
        self.writes: list[Write] = []
        self.partitions = partitions  # may grow
        self.schema_version = 0  # of changes; may grow
        self.faults: list[str] = []
        self.rate: float | None = None  # records/s; None: changes at random
        self._topic = topic
        self.write = write
        self._rng = rng
        self._next: Counter[int] = Counter()
        self._stop = Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                **IDEMPOTENT_PRODUCER_SETTINGS,  # a retry after a broken connection must not duplicate
                "delivery.timeout.ms": 600_000,
                "linger.ms": 20,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._thread = Thread(target=self._run, name="traffic")
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait for every acknowledgement."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(120)
        if left:
            self.faults.append(f"{left} records were not acknowledged")

    def abandon(self) -> None:
        """Stop without waiting for acknowledgements: the topic is gone."""
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(10)

    def _run(self) -> None:
        rate, changed, last, owed = RATES[0], monotonic(), monotonic(), 0.0
        while not self._stop.wait(TICK):
            now = monotonic()
            if self.rate is not None:
                rate = self.rate
            elif now - changed > RATE_CHANGE_S:
                rate, changed = self._rng.choice(RATES), now
            owed, last = min(owed + (now - last) * rate, 2 * rate), now
            while owed >= 1:
                owed -= 1
                self._write(self._rng.randrange(self.partitions))
            self._producer.poll(0)

    def _write(self, partition: int) -> None:
        number = max(self._next[partition], self.schema_version * VERSION_NUMBERS)
        key, value = RECORDS[self.write](self._topic, partition, number)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.writes.append(Write(str(partition), number, message.offset(), time=monotonic()))
            elif error.code() != KafkaError._UNKNOWN_PARTITION:  # never sent: as below, but noticed later
                self.faults.append(f"partition {partition} number {number}: {error}")

        try:
            self._producer.produce(self._topic, value, key, partition=partition, on_delivery=delivered)
        except BufferError:  # a long outage filled the queue; the number is used again
            return
        except KafkaException as error:
            # partitions that were just added are not known yet
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                self.faults.append(str(error))
            return
        self._next[partition] = number + 1
