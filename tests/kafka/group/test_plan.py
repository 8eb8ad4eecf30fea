"""Consumers that follow plans and write rates in the control topics."""

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from trimtab.consumer_sdk.membership.classic import coordinator

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]


@pytest.fixture
def config(config: dict[str, Any], control: Any) -> dict[str, Any]:
    """Configure the consumers with these control topics."""
    return {**config, **control.topics}


@pytest.fixture
def pair(topic: Any, start: Any, control: Any, eventually: Eventually) -> tuple[Any, Any]:
    """Return two consumers with two of four equal partitions each."""
    name = topic(partitions=4)
    control.publish_rates(name, 100.0, 100.0, 100.0, 100.0)
    one, two = start("one", [name]), start("two", [name])
    eventually(lambda: len(one.owned) == len(two.owned) == 2)
    return one, two


def load(worker: Any, rates: tuple[float, ...]) -> float:
    return sum(rates[p.partition] for p in tuple(worker.owned))  # it may change meanwhile


def test_load_is_balanced_instead_of_count(
    topic: Any, start: Any, control: Any, eventually: Eventually
) -> None:
    """One heavy partition weighs as much as three light ones."""
    name = topic(partitions=4)
    control.publish_rates(name, 300.0, 100.0, 100.0, 100.0)
    control.garbage()
    one, two = start("one", [name]), start("two", [name])
    eventually(lambda: sorted(len(w.owned) for w in (one, two)) == [1, 3])
    rates = (300.0, 100.0, 100.0, 100.0)
    assert load(one, rates) == load(two, rates) == 300.0


def test_a_new_epoch_makes_the_leader_rebalance(
    pair: tuple[Any, Any], control: Any, eventually: Eventually
) -> None:
    """A plan consolidates partitions onto one consumer, and the next plan spreads them again."""
    one, two = pair
    control.plan(1, replicas=1, capacity=1000.0)
    eventually(lambda: sorted(len(w.owned) for w in (one, two)) == [0, 4])
    control.plan(2, replicas=2, capacity=200.0)
    eventually(lambda: len(one.owned) == len(two.owned) == 2)


def test_a_plan_for_more_members_waits_for_them(
    pair: tuple[Any, Any], control: Any, eventually: Eventually
) -> None:
    """The group does not follow a plan for more members until the same epoch needs only the present ones."""
    one, two = pair
    before = one.consumer.generation_id()
    control.plan(1, replicas=3)
    eventually(lambda: all(w.consumer._member.plan for w in (one, two)))
    Event().wait(1.0)  # a leader looks at the plan twenty times in it
    assert one.consumer.generation_id() == before
    control.plan(1, replicas=2)
    eventually(lambda: sorted(len(w.owned) for w in (one, two)) == [0, 4], 20)  # before PATIENCE


def test_the_maximum_batch_age_changes_without_a_rebalance(
    topic: Any, start: Any, control: Any, eventually: Eventually
) -> None:
    """A plan of the same epoch with another batch age reaches each sink and moves nothing."""
    name = topic(partitions=1)
    control.plan(1)
    worker = start("one", [name])
    eventually(lambda: worker.owned)
    assert worker.consumer.batch_max_age_s() is None
    before = worker.consumer.generation_id()
    control.plan(1, batch_max_age_s=4.5)
    eventually(lambda: worker.consumer.batch_max_age_s() == 4.5)
    control.plan(1)
    eventually(lambda: worker.consumer.batch_max_age_s() is None)
    assert worker.consumer.generation_id() == before


def test_a_static_leader_that_returned_acts_on_the_next_plan(
    topic: Any, start: Any, control: Any, eventually: Eventually
) -> None:
    """A restarted static leader, which does not learn its role (KIP-814), follows the next plan."""
    name = topic(partitions=4)
    control.publish_rates(name, 100.0, 100.0, 100.0, 100.0)
    control.plan(1, replicas=2, capacity=200.0)
    patient = {"session_timeout_ms": 30_000}  # a restart on a busy machine takes seconds
    one = start("one", [name], group_instance_id="one", **patient)
    eventually(lambda: len(one.owned) == 4)
    two = start("two", [name], group_instance_id="two", **patient)
    eventually(lambda: len(one.owned) == len(two.owned) == 2)
    one.stop()
    back = start("one", [name], group_instance_id="one", **patient)
    eventually(lambda: len(back.owned) == 2)
    generation = back.consumer.generation_id()
    assert not coordinator.is_leader(back.consumer._member.client)
    control.plan(2, replicas=1, capacity=1000.0)
    eventually(lambda: sorted(len(w.owned) for w in (back, two)) == [0, 4])
    assert back.consumer.generation_id() == generation + 2


def test_the_plan_drains_by_instance_name(
    topic: Any, start: Any, feed: Any, log: Any, control: Any, eventually: Eventually
) -> None:
    """A member that the plan drains loses its partitions, without lost or repeated records."""
    name = topic(partitions=4)
    workers = {n: start(n, [name]) for n in ("one", "two", "three")}
    eventually(lambda: all(w.owned for w in workers.values()))
    feed.write(name, 4, 400)
    control.plan(1, replicas=2, capacity=200.0, draining=("two",))
    eventually(lambda: not workers["two"].owned)
    eventually(lambda: sum(len(w.owned) for w in workers.values()) == 4)
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) >= 800)
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())


def test_members_agree_on_the_handover_in_the_commit_metadata(
    topic: Any, start: Any, feed: Any, log: Any, eventually: Eventually
) -> None:
    """Commit metadata carries the seconds during which a moved partition was not read."""
    name = topic(partitions=2)
    settings = {"auto_commit_interval_ms": 200}
    one = start("one", [name], **settings)
    eventually(lambda: len(one.owned) == 2)
    feed.write(name, 2, 20)
    eventually(lambda: len(log.records) == 20)
    two = start("two", [name], **settings)
    eventually(lambda: len(two.owned) == 1)

    def handover_is_committed() -> bool:
        feed.write(name, 2, 2)
        partitions = two.consumer.assignment()
        return any("handover" in (p.metadata or "") for p in two.consumer.committed(partitions))

    eventually(handover_is_committed)


def test_lag_aware_needs_no_sidecar(topic: Any, start: Any, feed: Any, eventually: Eventually) -> None:
    """The example of KAFKA-5337: lags of 10, 6 and 5 on two consumers give 10 and 11."""
    name = topic(partitions=3)
    for partition, count in enumerate((1000, 600, 500)):
        feed.fill(name, partition, count)
    lag_aware = {"trimtab_heuristic": "lag-aware", "enable_auto_commit": False}
    one = start("one", [name], **lag_aware)
    two = start("two", [name], **lag_aware)
    eventually(lambda: {len(one.owned), len(two.owned)} == {1, 2})
    alone = one if len(one.owned) == 1 else two
    assert [p.partition for p in alone.owned] == [0]
