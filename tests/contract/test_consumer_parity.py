"""Method by method, our consumer takes the arguments of confluent-kafka's and answers alike."""

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Producer, TopicPartition

import trimtab.consumer_sdk

pytestmark = pytest.mark.broker

COUNT = 20
KINDS = [confluent_kafka.Consumer, trimtab.consumer_sdk.Consumer]
Settings = dict[str, Any]
Make = Callable[..., Any]
CLOSED_CALLS: dict[str, tuple[Any, ...]] = {
    "assign": ([],),
    "assignment": (),
    "cluster_id": (),
    "commit": (),
    "committed": ([],),
    "consume": (1, 0),
    "consumer_group_metadata": (),
    "get_watermark_offsets": (TopicPartition("t", 0),),
    "incremental_assign": ([],),
    "incremental_unassign": ([],),
    "list_topics": (),
    "memberid": (),
    "offsets_for_times": ([],),
    "pause": ([],),
    "poll": (0,),
    "position": ([],),
    "resume": ([],),
    "seek": (TopicPartition("t", 0, 0),),
    "set_sasl_credentials": ("user", "password"),
    "store_offsets": (None, [TopicPartition("t", 0, 1)]),
    "subscribe": (["t"],),
    "unassign": (),
    "unsubscribe": (),
}


@pytest.fixture(params=KINDS, ids=["theirs", "ours"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def make(kind: Any, bootstrap: str, group: str) -> Iterator[Make]:
    """Create consumers of one kind; close all at the end."""
    made: list[Any] = []

    def make(**settings: Any) -> Any:
        given = {k if k == "on_commit" else k.replace("_", "."): v for k, v in settings.items()}
        made.append(kind(_config(bootstrap, group) | given))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture
def filled(topic: Callable[..., str], bootstrap: str) -> str:
    """A topic of one partition with 20 records."""
    name = topic(partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(name, str(number).encode(), partition=0)
    producer.flush()
    return name


def _config(bootstrap: str, group: str) -> Settings:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 100,
    }


def read(consumer: Any, count: int, seconds: int = 30) -> list[Any]:
    """Read until there are `count` messages."""
    messages: list[Any] = []
    for _ in range(seconds * 2):
        messages += consumer.consume(count - len(messages), timeout=0.5)
        if len(messages) >= count:
            break
    return messages


def code_of(call: Callable[[], Any]) -> int:
    """Return the code of the KafkaException that a call raises."""
    with pytest.raises(KafkaException) as raised:
        call()
    return int(raised.value.args[0].code())


# -- signatures ---------------------------------------------------------------------------------------


def _their_methods() -> dict[str, list[ast.FunctionDef]]:
    """The methods of confluent-kafka's Consumer by its type stubs; a method may have overloads."""
    stubs = ast.parse((Path(confluent_kafka.__file__).parent / "cimpl.pyi").read_text())
    (found,) = (n for n in stubs.body if isinstance(n, ast.ClassDef) and n.name == "Consumer")
    methods: dict[str, list[ast.FunctionDef]] = {}
    for node in found.body:
        if isinstance(node, ast.FunctionDef):
            methods.setdefault(node.name, []).append(node)
    return methods


def _parameters(method: ast.FunctionDef) -> dict[str, Any]:
    """The parameters with a name and their defaults; ... for none, or for one that stubs leave out."""
    positional = method.args.args[1:]
    defaults = [ast.literal_eval(d) for d in method.args.defaults]
    named = dict(zip([a.arg for a in positional][len(positional) - len(defaults) :], defaults, strict=True))
    keywords = [a.arg for a in method.args.kwonlyargs]
    return {a.arg: named.get(a.arg, ...) for a in positional} | dict.fromkeys(keywords, ...)


@pytest.mark.parametrize("name", sorted({*_their_methods()} - {"__init__", "__exit__"}))
def test_every_method_takes_their_arguments(name: str) -> None:
    """Names, order and defaults of parameters are theirs; ours may have more behind them."""
    ours = inspect.signature(getattr(trimtab.consumer_sdk.Consumer, name)).parameters
    for overload in _their_methods()[name]:
        theirs = _parameters(overload)
        positional = [a.arg for a in overload.args.args[1:]]
        assert list(ours)[1 : 1 + len(positional)] == positional
        for parameter, default in theirs.items():
            assert parameter in ours
            assert default is ... or ours[parameter].default == default
        assert all(p.default is not p.empty for n, p in list(ours.items())[1:] if n not in theirs)


def test_no_method_of_theirs_is_missing() -> None:
    """The type stubs could lag behind the module."""
    theirs = {n for n in dir(confluent_kafka.Consumer) if not n.startswith("_")}
    assert theirs <= {*dir(trimtab.consumer_sdk.Consumer)}


@pytest.mark.parametrize("as_keywords", [False, True], ids=["dict", "keywords"])
def test_settings_come_as_a_dict_or_as_keywords(
    kind: Any, bootstrap: str, group: str, filled: str, *, as_keywords: bool
) -> None:
    """Consumer(config), Consumer(**config) and Consumer(config, more=...), where keywords override."""
    config = _config(bootstrap, "other" if not as_keywords else group)
    consumer = kind(**config) if as_keywords else kind(config, **{"group.id": group, "logger": None})
    consumer.commit(offsets=[TopicPartition(filled, 0, 3)], asynchronous=False)
    consumer.close()
    reader = kind(_config(bootstrap, group))
    assert [p.offset for p in reader.committed([TopicPartition(filled, 0)], timeout=10)] == [3]
    reader.close()


def test_a_closed_consumer_raises_a_runtime_error_from_every_method(make: Make) -> None:
    """RuntimeError is what applications written for theirs catch."""
    consumer = make(enable_auto_offset_store=False)
    consumer.close()
    for name, arguments in CLOSED_CALLS.items():
        with pytest.raises(RuntimeError):
            getattr(consumer, name)(*arguments)


@pytest.mark.parametrize("count", [-1, 1_000_001])
def test_consume_refuses_a_bad_number(make: Make, count: int) -> None:
    """ValueError, as theirs raises."""
    with pytest.raises(ValueError, match="num_messages must be between 0 and 1000000"):
        make().consume(count, 0.1)


def test_subscribe_refuses_what_is_no_list_of_topics(make: Make) -> None:
    """A topic as a string would be a subscription to its letters."""
    consumer = make()
    with pytest.raises(TypeError):
        consumer.subscribe("topic")
    with pytest.raises(TypeError):
        consumer.subscribe(["topic"], on_assign=3)
    assert code_of(lambda: consumer.subscribe([])) == KafkaError._INVALID_ARG


# -- offsets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1001, OFFSET_BEGINNING, OFFSET_END, -5])
def test_no_offset_is_never_committed(make: Make, filled: str, offset: int) -> None:
    """A good offset stays: committed, -1001 would rewind the group to auto.offset.reset."""
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([filled])
    read(consumer, 5)
    consumer.commit(asynchronous=False)
    nothing = [TopicPartition(filled, 0, offset)]
    assert code_of(lambda: consumer.commit(offsets=nothing, asynchronous=False)) == KafkaError._NO_OFFSET
    assert consumer.commit(offsets=nothing) is None
    assert consumer.committed([TopicPartition(filled, 0)], timeout=10)[0].offset == 5


def test_a_position_before_the_first_record_is_not_committed(make: Make, filled: str) -> None:
    """commit(offsets=position(assignment())) at the start, with `latest`, must not lose the backlog."""
    first = make(enable_auto_commit=False)
    first.subscribe([filled])
    read(first, 5)
    first.commit(asynchronous=False)
    first.close()
    late = make(enable_auto_commit=False, auto_offset_reset="latest")
    seen: list[int] = []

    def begin(consumer: Any, partitions: list[TopicPartition]) -> None:
        seen.append(
            code_of(lambda: consumer.commit(offsets=consumer.position(partitions), asynchronous=False))
        )

    late.subscribe([filled], on_assign=begin)
    assert [m.offset() for m in read(late, 1)] == [5]
    assert seen == [KafkaError._NO_OFFSET]


def test_partitions_without_an_offset_are_left_out_of_a_commit(make: Make, filled: str) -> None:
    """The others are committed, and the answer names all."""
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([filled])
    read(consumer, 5)
    both = [TopicPartition(filled, 0, 3), TopicPartition(filled, 1)]
    assert [p.offset for p in consumer.commit(offsets=both, asynchronous=False)] == [3, -1001]
    assert consumer.committed([TopicPartition(filled, 0)], timeout=10)[0].offset == 3


def test_an_event_is_no_record_to_commit_or_store(make: Make, filled: str) -> None:
    """The end of a partition has the offset of the next record: offset + 1 would skip it."""
    consumer = make(enable_auto_commit=False, enable_auto_offset_store=False, enable_partition_eof=True)
    consumer.subscribe([filled])
    end = read(consumer, COUNT + 1)[-1]
    assert end.error().code() == KafkaError._PARTITION_EOF
    assert code_of(lambda: consumer.commit(message=end, asynchronous=False)) == KafkaError._INVALID_ARG
    assert code_of(lambda: consumer.commit(message=end)) == KafkaError._INVALID_ARG
    assert code_of(lambda: consumer.store_offsets(message=end)) == KafkaError._INVALID_ARG


def test_a_message_and_offsets_exclude_each_other(make: Make, filled: str) -> None:
    """ValueError, as theirs raises."""
    consumer = make(enable_auto_offset_store=False)
    consumer.subscribe([filled])
    (message,) = read(consumer, 1)
    for call in (consumer.commit, consumer.store_offsets):
        with pytest.raises(ValueError, match="mutually exclusive"):
            call(message=message, offsets=[TopicPartition(filled, 0, 1)])
    with pytest.raises(ValueError, match="either message or offsets"):
        consumer.store_offsets()


def test_storing_no_offset_removes_the_stored_one(make: Make, filled: str) -> None:
    """Then there is nothing to commit."""
    consumer = make(enable_auto_commit=False, enable_auto_offset_store=False)
    consumer.subscribe([filled])
    read(consumer, 5)
    consumer.store_offsets(offsets=[TopicPartition(filled, 0, 5)])
    consumer.store_offsets(offsets=[TopicPartition(filled, 0)])
    assert code_of(lambda: consumer.commit(asynchronous=False)) == KafkaError._NO_OFFSET


def test_an_asynchronous_commit_of_nothing_answers_on_commit(make: Make, filled: str) -> None:
    """commit() in a loop must not raise before the first record."""
    completed: list[int] = []

    def on_commit(error: Any, _: Any) -> None:
        completed.append(error.code())

    consumer = make(enable_auto_commit=False, on_commit=on_commit)
    consumer.subscribe([filled])
    assert consumer.commit() is None
    read(consumer, 1)
    for _ in range(20):
        consumer.poll(0.1)
        if completed:
            break
    assert completed == [KafkaError._NO_OFFSET]


# -- partitions ---------------------------------------------------------------------------------------


def test_a_pause_inside_on_assign_lasts(make: Make, filled: str) -> None:
    """A partition paused in the callback returns records after resume() only."""

    def begin(consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)

    consumer = make()
    consumer.subscribe([filled], on_assign=begin)
    assert read(consumer, 10, seconds=4) == []
    consumer.resume(consumer.assignment())
    assert len(read(consumer, 10)) == 10


def test_assign_replaces_the_partitions_that_are_read(make: Make, filled: str, topic: Any) -> None:
    """A second assign() ends the first; without a subscription both commit."""
    other = topic(partitions=1)
    consumer = make(enable_auto_commit=False)
    consumer.assign([TopicPartition(other, 0, 0)])
    consumer.assign([TopicPartition(filled, 0, 12)])
    assert [p.topic for p in consumer.assignment()] == [filled]
    assert [m.offset() for m in read(consumer, 2)] == [12, 13]
    assert [p.offset for p in consumer.commit(asynchronous=False)] == [14]
    assert consumer.committed([TopicPartition(filled, 0)], timeout=10)[0].offset == 14


@pytest.mark.parametrize("how", ["close", "unassign", "assign", "incremental_unassign"])
def test_reading_without_a_subscription_commits_automatically(
    make: Make, filled: str, how: str, eventually: Any
) -> None:
    """Offsets are committed when the reading of a partition ends."""
    consumer = make()
    consumer.assign([TopicPartition(filled, 0, 3)])
    read(consumer, 2)
    calls: dict[str, tuple[Any, ...]] = {
        "assign": ([],),
        "incremental_unassign": ([TopicPartition(filled, 0)],),
    }
    getattr(consumer, how)(*calls.get(how, ()))
    watcher, where = make(), [TopicPartition(filled, 0)]
    eventually(lambda: watcher.committed(where, timeout=10)[0].offset == 5)


def test_reading_without_a_subscription_commits_at_intervals(
    make: Make, filled: str, eventually: Any
) -> None:
    """auto.commit.interval.ms counts without a group, too."""
    consumer = make(auto_commit_interval_ms=100)
    consumer.assign([TopicPartition(filled, 0, 3)])
    read(consumer, 2)
    watcher, where = make(), [TopicPartition(filled, 0)]
    consumer.pause(where)
    eventually(lambda: consumer.poll(0.1) is None and watcher.committed(where, timeout=10)[0].offset == 5)


def test_partitions_are_added_and_removed_without_a_subscription(make: Make, filled: str) -> None:
    """Incremental calls need no group."""
    consumer = make()
    consumer.incremental_assign([TopicPartition(filled, 0, 18)])
    assert [m.offset() for m in read(consumer, 2)] == [18, 19]
    consumer.incremental_unassign([TopicPartition(filled, 0)])
    assert consumer.assignment() == []


def test_assign_beside_a_subscription_moves_the_position(make: Make, filled: str) -> None:
    """Outside of the callback assign() replaces what is being read."""
    consumer = make()
    consumer.subscribe([filled])
    read(consumer, 5)
    consumer.assign([TopicPartition(filled, 0, 2)])
    assert [m.offset() for m in read(consumer, 2)] == [2, 3]


# -- queries ------------------------------------------------------------------------------------------


def test_watermarks_come_from_the_broker_or_the_last_fetch(make: Make, filled: str) -> None:
    """`cached` asks no broker."""
    consumer = make()
    consumer.subscribe([filled])
    read(consumer, COUNT)
    where = TopicPartition(filled, 0)
    assert consumer.get_watermark_offsets(where, 10) == (0, COUNT)
    assert consumer.get_watermark_offsets(where, cached=True)[1] == COUNT


def test_the_cluster_has_an_id(make: Make, admin: Any) -> None:
    """The one that the admin client finds."""
    assert make().cluster_id(timeout=10) == admin.describe_cluster().result(10).cluster_id


def test_credentials_may_be_given_later(make: Make) -> None:
    """Without SASL they have no effect."""
    assert make().set_sasl_credentials("user", "password") is None


# -- transactions -------------------------------------------------------------------------------------


@pytest.fixture
def transactions(bootstrap: str, group: str) -> Producer:
    """A transactional producer."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions(30)
    return producer


def test_offsets_are_committed_in_a_transaction(make: Make, filled: str, transactions: Producer) -> None:
    """Aborted offsets do not count, and no later commit of the consumer rewinds committed ones."""
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([filled])
    for end, finish in ((4, transactions.abort_transaction), (9, transactions.commit_transaction)):
        read(consumer, end - consumer.position([TopicPartition(filled, 0)])[0].offset if end > 4 else 4)
        transactions.begin_transaction()
        transactions.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
        )
        finish(30)
    consumer.close()
    assert make().committed([TopicPartition(filled, 0)], timeout=10)[0].offset == 9


def test_a_member_that_was_removed_commits_in_no_transaction(
    make: Make, filled: str, transactions: Producer
) -> None:
    """The broker fences the generation, or the consumer names its end."""
    consumer = make(enable_auto_commit=False)
    consumer.subscribe([filled])
    read(consumer, 4)
    stale = consumer.consumer_group_metadata()
    consumer.unsubscribe()
    successor = make(enable_auto_commit=False)
    successor.subscribe([filled])
    read(successor, 1)
    transactions.begin_transaction()
    offsets = [TopicPartition(filled, 0, 4)]
    refused = code_of(lambda: transactions.send_offsets_to_transaction(offsets, stale, 30))
    assert refused in {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID}
    transactions.abort_transaction(30)
