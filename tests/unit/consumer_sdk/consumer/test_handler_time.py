"""How long an application works on records."""

import json

from confluent_kafka import TopicPartition as RawPartition

from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.handler_time import HandlerTime
from trimtab.consumer_sdk.consumer.partition_state import PartitionState

P, Q = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_work_lasts_from_records_to_the_next_call() -> None:
    """Also that which still runs; waiting for records is none."""
    clock = Ticking()
    opened, time = clock.wall(), HandlerTime(clock)
    clock.sleep(5)
    time.on_return([1])
    clock.sleep(2)
    time.on_call(5, clock.monotonic())
    clock.sleep(3)
    time.on_return([])
    time.on_call(5, clock.monotonic())
    time.on_return([1])
    clock.sleep(0.25)
    time.on_call(0, clock.monotonic())  # serves callbacks
    time.on_return([])
    clock.sleep(0.25)
    assert time.read_facts() == {"handling": 2.5, "uptime": 10.5, "opened": opened}


def test_one_partition_of_a_commit_tells_it() -> None:
    """Beside a handover; a partition whose metadata the application gives tells nothing."""
    facts = {"handling": 2.5, "uptime": 10.5, "opened": 7.0}
    state = PartitionState()
    state.record_release_time(RawPartition(*P, 5, '{"released": 100.5}'))
    state.record_first_read(P, 101.0)
    both = state.build_positions([RawPartition(*Q, 9), RawPartition(*P, 6)], facts)
    assert json.loads(both[P].metadata.rstrip("\0")) == {"handover": 0.5, "at": 101.0, **facts}
    assert both[Q].metadata == ""
    given = state.build_positions([RawPartition(*P, 6, "mine"), RawPartition(*Q, 9)], facts)
    assert given[P].metadata == "mine\0"
    assert json.loads(given[Q].metadata.rstrip("\0")) == facts
    assert json.loads(state.build_positions([RawPartition(*P, 7)], {})[P].metadata.rstrip("\0")) == {
        "handover": 0.5,
        "at": 101.0,
    }
