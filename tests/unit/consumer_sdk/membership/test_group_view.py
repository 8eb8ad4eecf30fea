"""The public view of the control topics, without a broker."""

from collections.abc import Mapping

import pytest

from trimtab.assignor.clients.leader_plugin import lead_group, log_round
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.rebalance.leader import RebalanceRound
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk import GroupView
from trimtab.consumer_sdk.membership import control_topic_reader, group_view
from trimtab.consumer_sdk.membership.group_lag import GroupLag

LAGS = {TopicPartition("t", n): lag for n, lag in enumerate((100_000, 60_000, 50_000))}
CONFIG = {"bootstrap.servers": "x:1", "group.id": "g"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[PartitionIndex]:
    """Brokers that know the lags; returns what they were asked for."""
    asked: list[PartitionIndex] = []

    def measure(_: GroupLag, partition_index: PartitionIndex) -> Mapping[TopicPartition, int]:
        asked.append(partition_index)
        return LAGS

    monkeypatch.setattr(GroupLag, "measure", measure)
    return asked


def lead(view: GroupView, heuristic: str) -> RebalanceRound:
    members = {m: MemberSubscription(("t",)) for m in ("a", "b")}
    return lead_group(members, {"t": range(3)}, {"t"}, view(), PlacementPolicy(heuristic))


def test_only_a_leader_that_places_by_lag_asks_for_it(asked: list[PartitionIndex]) -> None:
    """A view, and a round of another heuristic, ask for nothing."""
    view = GroupView(CONFIG)
    view()
    lead(view, "mwf")
    assert not asked
    outcome = lead(view, "lag-aware")
    assert len(asked) == 1
    assert outcome.target.tolist() == [0, 1, 1]


def test_the_plans_heuristic_asks_as_well(asked: list[PartitionIndex]) -> None:
    """A plan by lag is carried out with lags, whatever the plugin's own heuristic."""
    view = GroupView(CONFIG)
    view._reader.plan = GroupPlan("g", 1, 0.0, 2, "lag-aware", 1.0)
    assert lead(view, "mwf").target.tolist() == [0, 1, 1]
    assert len(asked) == 1


def test_partly_known_lags_are_told(asked: list[PartitionIndex], caplog: pytest.LogCaptureFixture) -> None:
    """A partition whose lag no broker tells counts as 0, and the log says how many there are."""
    del asked
    members = {"a": MemberSubscription(("t",))}
    log_round(lead_group(members, {"t": range(5)}, {"t"}, GroupView(CONFIG)(), PlacementPolicy("lag-aware")))
    assert "no lag of 2 of 5 partitions is known: it counts as 0" in caplog.messages


def test_settings_are_those_of_a_consumer() -> None:
    """A wrong one is named at once."""
    with pytest.raises(SettingError, match=r"did you mean 'group\.id'"):
        GroupView({**CONFIG, "group_id": "g"})


def test_a_missing_broker_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """One warning: without a broker a view looks like that of a group without a sidecar."""
    monkeypatch.setattr(group_view, "CONTROL_TOPICS_READ_TIMEOUT_S", 0.2)
    monkeypatch.setattr(control_topic_reader, "CONTROL_CLIENT_CLOSE_TIMEOUT_S", 0.1)
    with GroupView({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) as view:
        assert view().plan is None
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname != "DEBUG"]
    assert "no answer from 127.0.0.1:1 in 0.2 s about the control topics" in warning
