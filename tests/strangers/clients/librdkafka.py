"""A consumer of confluent-kafka, which is librdkafka's: see telling.py for the options."""

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from strangers.clients.telling import POLL_S, Teller


def main(words: list[str]) -> None:
    teller = Teller(words)
    consumer = Consumer(build_config(teller))
    consumer.subscribe(
        [teller.options["topic"]],
        on_assign=lambda _, partitions: teller.tell_partitions("assigned", _keys(partitions)),
        on_revoke=lambda _, partitions: revoke(consumer, teller, partitions),
        on_lost=lambda _, partitions: lose(teller, partitions),
    )
    while not teller.stopped.is_set():
        handle(consumer, teller)
        if teller.is_commit_due():
            commit(consumer, teller, list(teller.uncommitted))
    commit(consumer, teller, list(teller.uncommitted))
    consumer.close()
    teller.tell("closed")


def build_config(teller: Teller) -> dict[str, Any]:
    """Return the settings; on the new protocol the broker has the timeouts and the assignor."""
    options = teller.options
    config: dict[str, Any] = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "client.id": options["client"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if options.get("instance"):
        config["group.instance.id"] = options["instance"]
    if options["protocol"] == "consumer":
        return {**config, "group.protocol": "consumer"}
    return {
        **config,
        "partition.assignment.strategy": options["assignors"],
        "heartbeat.interval.ms": int(options["heartbeat"]),
        "session.timeout.ms": int(options["session"]),
    }


def handle(consumer: Consumer, teller: Teller) -> None:
    messages = consumer.consume(teller.batch, timeout=POLL_S)
    for error in (m.error() for m in messages if m.error()):
        if error.fatal():
            raise KafkaException(error)
        teller.complain(KafkaException(error))
    records = [m for m in messages if not m.error()]
    teller.stopped.wait(teller.work_s(len(records)))
    teller.tell_read((m.topic(), m.partition(), m.offset()) for m in records)


def revoke(consumer: Consumer, teller: Teller, partitions: list[TopicPartition]) -> None:
    commit(consumer, teller, _keys(partitions))
    teller.forget(_keys(partitions))
    teller.tell_partitions("revoked", _keys(partitions))


def lose(teller: Teller, partitions: list[TopicPartition]) -> None:
    teller.forget(_keys(partitions))
    teller.tell_partitions("lost", _keys(partitions))


def commit(consumer: Consumer, teller: Teller, partitions: list[tuple[str, int]]) -> None:
    """Commit what was handled of these partitions; a refusal is told, and the next commit repeats it."""
    offsets = [TopicPartition(*p, offset) for p, offset in teller.handled_of(partitions).items()]
    if not offsets:
        return
    try:
        answers = consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        teller.complain(error)
        return
    accepted = [a for a in answers or () if a.error is None or a.error.code() == KafkaError.NO_ERROR]
    teller.tell_committed({(a.topic, a.partition): a.offset for a in accepted})


def _keys(partitions: list[TopicPartition]) -> list[tuple[str, int]]:
    return [(p.topic, p.partition) for p in partitions]


if __name__ == "__main__":
    main(sys.argv[1:])
