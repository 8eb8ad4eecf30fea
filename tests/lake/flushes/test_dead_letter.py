"""Dead letters: listed, sent to a real broker again, and deleted from their table."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from support.lake.slow_on_delta import slow_on_delta
from trimtab.assignor.model import TopicPartition as Partition
from trimtab.cli.dead_letter import options
from trimtab.cli.main import main
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import DeadLetterReplayError
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake, IcebergTable
from trimtab.consumer_sdk.lake.session import factory
from trimtab.consumer_sdk.lake.tables import dead_letters
from trimtab.consumer_sdk.lake.tables.dead_letters import (
    DeadLetterReplay,
    DeadLetterSelection,
    list_dead_letter_tables,
    summarize_dead_letters,
)

SLOW_ON_DELTA = slow_on_delta("iceberg", "delta")
pytestmark = [pytest.mark.spark, pytest.mark.broker]

Make = Callable[..., Any]
JSON = {"lake_decoder": "json", "lake_schema": "id INT", "lake_flush_timeout": "200 s"}


@pytest.fixture
def letters(writers: Make, namespace: str, fakes: Any) -> Callable[[str], str]:
    """Create a table with four dead letters in two partitions of a topic; return its name."""

    def make(topic: str) -> str:
        config = JSON | {"lake_tables": {topic: f"{namespace}.orders"}}
        p0, p1 = Partition(topic, 0), Partition(topic, 1)
        consumer, made = writers({p0: [], p1: []}, **config)
        consumer.assign(made, p0, p1)
        values = [b"bad", b'{"id": 1}', b'{"id": "x"}', b"worse"]
        heads = [("kind", b"k")]
        made.write([fakes.Message(p1, at, value, b"key", heads) for at, value in enumerate(values)])
        far = fakes.Message(p0, 0, b"[]")
        # microseconds sent as milliseconds, year 55840: it has no time in the table, which no filter selects
        far.timestamp = lambda: (1, 1_700_000_000_000_000)
        made.write([far])
        made.close()
        return f"{namespace}.orders_dead_letter"

    return make


def producer(bootstrap: str) -> Producer:
    return Producer(dead_letters.build_producer_settings({"bootstrap.servers": bootstrap, "group.id": "g"}))


def read(bootstrap: str, topic: str, count: int) -> list[Any]:
    """Return this many records of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[Any] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), timeout=30)
    assert consumer.consume(1, timeout=0.5) == []
    consumer.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


@SLOW_ON_DELTA
def test_dead_letters_are_replayed_once_with_their_origin_in_headers(
    letters: Any, lake: IcebergLake, spark: Any, bootstrap: str, topic: Any
) -> None:
    """Partition, key, value and headers stay; a second replay finds nothing to send."""
    name = topic(partitions=2)
    table = letters(name)
    opened = lake.open_table(table)
    assert opened is not None
    offsets = opened.read_offsets().offsets
    assert DeadLetterReplay(lake, table, producer(bootstrap)).run(DeadLetterSelection()) == 4
    assert DeadLetterReplay(lake, table, producer(bootstrap)).run(DeadLetterSelection()) == 0
    assert spark.table(table).count() == 0
    found = read(bootstrap, name, 4)
    assert [m.partition() for m in found] == [0, 1, 1, 1]
    by_value = {m.value(): m for m in found}
    assert set(by_value) == {b"bad", b'{"id": "x"}', b"worse", b"[]"}
    worse = by_value[b"worse"]
    assert worse.key() == b"key"
    assert dict(worse.headers()) == {
        "kind": b"k",
        "trimtab.replay.topic": name.encode(),
        "trimtab.replay.partition": b"1",
        "trimtab.replay.offset": b"3",
        "trimtab.replay.timestamp": b"1700000000003",
        "trimtab.replay.error": b"not one JSON object",
    }
    again = lake.open_table(table)
    assert again is not None
    seen = again.read_offsets()
    assert seen.offsets == offsets
    if isinstance(again, IcebergTable):
        newest = again.java_table.currentSnapshot().summary().get("trimtab.offsets")
        assert newest == seen.version


def test_selected_dead_letters_are_sent_to_the_target_topic(
    letters: Any, lake: IcebergLake, spark: Any, bootstrap: str, topic: Any
) -> None:
    """Reason, topic, time and number select; another topic gets the records partitioned by key."""
    name, other = topic(partitions=2), topic(partitions=1)
    table = letters(name)
    sent = DeadLetterReplay(lake, table, producer(bootstrap), target_topic=other).run(
        DeadLetterSelection(error="not one", limit=1)
    )
    assert sent == 1
    assert read(bootstrap, other, 1)[0].value() in (b"bad", b"worse", b"[]")
    assert spark.table(table).count() == 3
    assert DeadLetterReplay(lake, table, producer(bootstrap)).run(DeadLetterSelection(topic="another")) == 0
    by_reason = {
        (heap.field, heap.error): heap.records
        for heap in summarize_dead_letters(lake, table, DeadLetterSelection(topic=name))
    }
    assert by_reason == {(None, "not one JSON object"): 2, ("id", "not of type INT"): 1}


def test_dead_letters_are_counted_by_field_and_problem(
    writers: Make, lake: IcebergLake, namespace: str
) -> None:
    """Whatever the value, and the place in an array."""
    values = [
        b'{"a":[1,"x"]}',
        b'{"a":[null,null,"y: z"]}',
        b'{"a":[1.5]}',
        b'{"a":[1,?]}',
        b'{"a":[],}',
        b"{",
    ]
    consumer, writer = writers({("orders", 0): values}, **JSON | {"lake_schema": "a ARRAY<INT>, b INT"})
    consumer.assign(writer, Partition("orders", 0))
    writer.write(consumer.consume(len(values)))
    writer.close()
    found = summarize_dead_letters(lake, f"{namespace}.orders_dead_letter", DeadLetterSelection())
    assert [(heap.field, heap.error, heap.records) for heap in found] == [
        (None, "not valid JSON", 2),
        ("a[]", "not of type INT", 2),
        ("a[]", "not exact in INT", 1),
        ("a[]", "not valid JSON", 1),
    ]


def test_records_that_kafka_rejects_stay_in_the_table(
    letters: Any, lake: IcebergLake, spark: Any, bootstrap: str, topic: Any
) -> None:
    """The error has their number; delivered records are not sent again."""
    table = letters(topic(partitions=2))
    sending = producer(bootstrap)

    class Refusing:
        """A producer whose broker rejects one of the records."""

        def __getattr__(self, name: str) -> Any:
            return getattr(sending, name)

        def produce(self, to: str, value: bytes, key: Any, **options: Any) -> None:
            if value == b"worse":
                options["on_delivery"](KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
            else:
                sending.produce(to, value, key, **options)

    with pytest.raises(DeadLetterReplayError, match="did not accept 1 of 4 records"):
        DeadLetterReplay(lake, table, Refusing()).run(DeadLetterSelection())  # type: ignore[arg-type]
    assert [r.value for r in spark.table(table).collect()] == [b"worse"]


def test_a_replay_runs_beside_a_writer(
    letters: Any, lake: IcebergLake, spark: Any, bootstrap: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters that arrive during a deletion stay, and none is sent twice."""
    name = topic(partitions=2)
    table = letters(name)
    recommit, seen = dead_letters.recommit_offsets, []

    def slow(found: Any) -> None:
        if not seen:  # a writer commits between the read and the commit
            seen.append(found)
            other = lake.open_table(table)
            assert other is not None
            copy = spark.createDataFrame(
                [(name, 0, 99, b"new", "e")],
                "topic string, partition int, offset bigint, value binary, error string",
            )
            read_offsets = found.read_offsets

            def raced() -> Any:
                seen_offsets = read_offsets()
                other.commit(
                    other.stage_rows(copy, "theirs"),
                    seen_offsets.offsets.advanced_by("other", {}),
                    other.read_offsets(),
                )
                return seen_offsets

            monkeypatch.setattr(found, "read_offsets", raced)
        recommit(found)

    monkeypatch.setattr(dead_letters, "recommit_offsets", slow)
    assert DeadLetterReplay(lake, table, producer(bootstrap)).run(DeadLetterSelection()) == 4
    assert [r.offset for r in spark.table(table).collect()] == [99]


@SLOW_ON_DELTA
def test_only_tables_that_the_sink_made_are_replayed(letters: Any, lake: IcebergLake) -> None:
    """A table of another origin may have the name: replaying it would delete its rows."""
    table = letters("orders")
    lake.spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('trimtab.dead-letter')")
    assert table not in list_dead_letter_tables(lake)
    with pytest.raises(SettingError, match=f"{table}.*not made by the sink") as refused:
        list_dead_letter_tables(lake, table)
    lake.spark.sql("ALTER TABLE" + str(refused.value).partition("ALTER TABLE")[2])
    assert list_dead_letter_tables(lake, table) == [table]


def test_a_missing_table_or_topic_is_a_setting_error(
    letters: Any, lake: IcebergLake, namespace: str, bootstrap: str
) -> None:
    """The error lists the existing tables; no record is lost."""
    table = letters("gone")
    assert list_dead_letter_tables(lake, f"{namespace}.orders") == [table]
    assert table in list_dead_letter_tables(lake)
    with pytest.raises(SettingError, match=rf"no dead-letter table '{namespace}.x_dead.*{table}"):
        list_dead_letter_tables(lake, f"{namespace}.x")
    with pytest.raises(SettingError, match="--to-topic"):
        DeadLetterReplay(lake, table, producer(bootstrap), target_topic="no-such-topic").run(
            DeadLetterSelection()
        )
    assert sum(heap.records for heap in summarize_dead_letters(lake, table, DeadLetterSelection())) == 4


def test_the_command_lists_and_replays(  # noqa: PLR0913, PLR0917 - fixtures
    letters: Any,
    lake: IcebergLake,
    bootstrap: str,
    topic: Any,
    warehouse: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dry run sends nothing, a time can be given, and the output has the number of sent records."""
    table = letters(topic(partitions=2))
    shared = IcebergLake(lake.spark, lake.catalog_name, file_writer="spark")
    monkeypatch.setattr(factory, "open_lake", lambda _: shared)
    where = ["--warehouse", str(warehouse)]
    assert main(["dead-letter", "list", table, *where, "--since", "2023-11-01"]) == 0
    assert "3 records" in capsys.readouterr().out
    assert main(["dead-letter", "replay", table, *where]) == 2
    assert "--bootstrap" in capsys.readouterr().err
    words = ["dead-letter", "replay", table, *where, "-b", bootstrap]
    assert main([*words, "--dry-run"]) == 0
    assert "4 records" in capsys.readouterr().out
    assert main([*words, "--until", "2023-11-01"]) == 0
    assert f"{table}: 0 records" in capsys.readouterr().out
    assert main(words) == 0
    assert f"{table}: 4 records sent and deleted" in capsys.readouterr().out
    assert main(["dead-letter", "list"]) == 2
    assert options.COMMAND.info.no_args_is_help
