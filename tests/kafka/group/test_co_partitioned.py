"""Co-partitioned topics on a broker: partitions of one number have one reader, with and without a plan."""

from collections.abc import Callable, Sequence
from time import time
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates

pytestmark = pytest.mark.broker

RATES = {"orders": (400.0, 10.0, 10.0, 10.0), "payments": (10.0, 10.0, 10.0, 300.0)}


@pytest.fixture
def publish(admin: AdminClient, bootstrap: str, group: str, config: dict[str, Any]) -> Callable[..., None]:
    """Publish control values as a sidecar does, to topics of this test alone."""
    config |= {"trimtab.plan.topic": f"{group}.plan", "trimtab.write.rate.topic": f"{group}.rates"}
    created = admin.create_topics([NewTopic(f"{group}.plan", 1, 1), NewTopic(f"{group}.rates", 1, 1)])
    for topic in created.values():
        topic.result()
    producer = Producer({"bootstrap.servers": bootstrap})

    def publish(value: GroupPlan | TopicWriteRates) -> None:
        name = "plan" if isinstance(value, GroupPlan) else "rates"
        producer.produce(f"{group}.{name}", value.encode(), value.key)
        producer.flush()

    return publish


@pytest.fixture
def topics(topic: Any, group: str, publish: Any) -> tuple[str, str]:
    """Return two topics whose busy partitions have different numbers."""
    names = (topic(partitions=4), topic(partitions=4))
    for name, rates in zip(names, RATES.values(), strict=True):
        loads = {n: PartitionLoad(bytes_per_s=rate) for n, rate in enumerate(rates)}
        publish(TopicWriteRates(group, name, time(), 30.0, "offsets", loads))
    return names


def read_together(workers: Sequence[Any], topics: tuple[str, str]) -> bool:
    """Return whether all is read, and partitions of one number by one worker."""
    numbers = [{t: {p.partition for p in tuple(w.owned) if p.topic == t} for t in topics} for w in workers]
    return sum(len(n[t]) for n in numbers for t in topics) == 8 and all(
        n[topics[0]] == n[topics[1]] for n in numbers
    )


def test_partitions_of_one_number_have_one_reader(topics: Any, start: Any, eventually: Any) -> None:
    """Also while members come and go; without the setting the busy partitions would be apart."""
    workers = [start(n, list(topics), trimtab_co_partitioned=[list(topics)]) for n in ("one", "two")]
    eventually(lambda: all(w.owned for w in workers) and read_together(workers, topics))
    third = start("three", list(topics), trimtab_co_partitioned=[list(topics)])
    eventually(lambda: third.owned and read_together([*workers, third], topics))
    third.stop()
    eventually(lambda: read_together(workers, topics))


def test_the_plan_says_what_is_co_partitioned(
    topics: Any, group: str, start: Any, publish: Any, eventually: Any
) -> None:
    """The consumers have no such setting; the next epoch brings the partitions together."""
    workers = [start(n, list(topics)) for n in ("one", "two")]
    eventually(lambda: all(w.owned for w in workers) and not read_together(workers, topics))
    publish(GroupPlan(group, 1, time(), 2, "mwf", 600.0, co_partitioned=(tuple(topics),)))
    eventually(lambda: all(w.owned for w in workers) and read_together(workers, topics))
