"""A share group whose coordinator responds in part, late or not at all."""

from types import SimpleNamespace
from typing import Any

import pytest

from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import ShareGroupsUnsupportedError
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.apis import Api
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.kafka_protocol.errors import ConnectionFailedError
from trimtab.sidecar.errors import GroupTypeMismatchError
from trimtab.sidecar.kafka import share_group
from trimtab.sidecar.kafka.share_group import ShareGroupClient
from trimtab.sidecar.model.observation import GroupState
from trimtab.sidecar.settings.settings import load_settings

SETTINGS = load_settings(
    None, {"bootstrap": "b:1", "group": "billing", "capacity": 1, "queue": "share", "topics": "orders"}
)
CLOCK = Ticking()
LOADING = 14
NONE_SUCH = 69


class Coordinator(Brokers):
    """Brokers that answer from here."""

    def __init__(self) -> None:
        super().__init__({"bootstrap.servers": "b:1"}, CLOCK, client_id="test", timeout=SETTINGS.timeout)
        self.away = False
        self.kind: str | None = "share"
        self.features = {"share.version": {"supported": (0, 1), "finalized": (0, 1)}}
        self.errors = [0, 0]  # of the partitions
        self.closed = self.listed = 0

    def close(self) -> None:
        self.closed += 1

    def fetch_features(self) -> Any:
        if self.away:
            raise ConnectionFailedError("away")
        return self.features

    def list_groups(self) -> list[Any]:
        self.listed += 1
        return [] if self.kind is None else [SimpleNamespace(group_id="billing", group_type=self.kind)]

    def ask_coordinator(self, group: str, api: Api, fields: Any, **_: Any) -> Any:
        answer = {"group_id": group, "error_code": 0, "error_message": None}
        if api is apis.SHARE_GROUP_DESCRIBE:
            assert fields == {"group_ids": [group]}
            return SimpleNamespace(groups=[SimpleNamespace(**answer, group_state="Stable", members=[])])
        topics = [SimpleNamespace(topic_name="orders", partitions=self._offsets())]
        return SimpleNamespace(groups=[SimpleNamespace(**answer, topics=topics)])

    def _offsets(self) -> list[Any]:
        return [
            SimpleNamespace(partition_index=n, start_offset=3, lag=n, error_code=code, error_message=None)
            for n, code in enumerate(self.errors)
        ]


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(share_group, "connect_brokers", lambda *_: made)
    return made


def test_loading_partition_makes_the_commits_unknown(coordinator: Coordinator) -> None:
    """The request is retried until the timeout, then the partition is named."""
    clock = CLOCK
    group = ShareGroupClient(SETTINGS, clock)
    coordinator.errors[1] = LOADING
    began = clock.now
    commits = group.fetch_group_commits()
    assert not commits.is_known
    assert not commits.offsets
    (text,) = commits.errors
    assert "COORDINATOR_LOAD_IN_PROGRESS: orders-1" in text
    assert clock.now - began >= SETTINGS.timeout
    coordinator.errors[1] = 0
    commits = group.fetch_group_commits()
    assert (commits.is_known, commits.errors) == (True, ())
    assert commits.lags == {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 1}


def test_permanent_error_is_not_retried(coordinator: Coordinator) -> None:
    """A retry would return the same error."""
    clock = CLOCK
    group, coordinator.errors = ShareGroupClient(SETTINGS, clock), [NONE_SUCH, 0]
    began = clock.now
    assert "GROUP_ID_NOT_FOUND: orders-0" in group.fetch_group_commits().errors[0]
    assert clock.now == began


def test_group_type_is_checked_until_known(coordinator: Coordinator) -> None:
    """After an outage at the start a wrong type is an error, and the group stays unknown until it fits."""
    coordinator.away, coordinator.kind = True, "classic"
    group = ShareGroupClient(SETTINGS, Ticking())
    assert "away" in group.describe_group()[1][0]
    coordinator.away = False
    described, errors = group.describe_group()
    assert described.state is GroupState.UNKNOWN
    assert errors[0].startswith("group 'billing' is a classic group, not a share group")
    assert not group.fetch_group_commits().is_known
    coordinator.kind = "share"
    assert group.describe_group()[0].state is GroupState.STABLE
    listed = coordinator.listed
    assert group.fetch_group_commits().is_known
    assert group.describe_group()[1] == ()
    assert coordinator.listed == listed


def test_missing_share_groups_are_reported_after_an_outage(coordinator: Coordinator) -> None:
    """They are errors of an iteration, and the loop continues."""
    coordinator.away = True
    group = ShareGroupClient(SETTINGS, CLOCK)
    coordinator.away, coordinator.features = False, {}
    assert "have no share groups" in group.describe_group()[1][0]


@pytest.mark.parametrize(
    ("kind", "features", "error"),
    [("consumer", None, GroupTypeMismatchError), ("share", {}, ShareGroupsUnsupportedError)],
)
def test_refused_client_leaves_no_connection(
    coordinator: Coordinator, kind: str, features: Any, error: type[Exception]
) -> None:
    """A constructor that raises has closed its connection."""
    coordinator.kind = kind
    coordinator.features = coordinator.features if features is None else features
    with pytest.raises(error):
        ShareGroupClient(SETTINGS, Ticking())
    assert coordinator.closed == 1
