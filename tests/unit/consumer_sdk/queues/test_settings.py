"""A queue's settings, and a broker's features, are checked before anything is done."""

from typing import Any

import pytest

from trimtab.cli.main import main
from trimtab.common.errors import InvalidPayloadError, SettingError, ShareGroupsUnsupportedError
from trimtab.consumer_sdk.queues import open_queue
from trimtab.consumer_sdk.queues.kmq.markers import decode_marker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings
from trimtab.consumer_sdk.queues.share.broker_features import require_share_version

PLAIN = {"bootstrap.servers": "localhost:1", "group.id": "g"}


def test_names_of_topics_follow_from_topic_and_group() -> None:
    """Markers and dead letters are the group's own; what is given wins."""
    found = parse_queue_settings("orders", PLAIN)
    assert (found.markers_topic, found.dead_letter_topic) == ("orders.g.markers", "orders.g.dead")
    assert found.tracker_group == "g-redeliver"
    assert parse_queue_settings("orders", {**PLAIN, "trimtab.queue.markers": "m"}).markers_topic == "m"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"trimtab.queue.timeout": "soon"}, "timeout"),
        ({"trimtab.queue.timeout": 0}, "above 0"),
        ({"trimtab.queue.max.deliveries": 0}, "whole number"),
        ({"trimtab.queue.guarantee": "exactly-once"}, "at-least-once or at-most-once"),
        ({"trimtab.queue.time.out": "3 s"}, "did you mean"),
        ({"trimtab.queue.dead.letter": "orders"}, "the topic of the messages"),
        ({"trimtab.queue.dead.letter": " "}, "no name of a topic"),
        ({"trimtab.queue.dead.letter": None}, "no name of a topic"),
        ({"trimtab.queue.dead.letter": "orders.g.markers"}, "is the markers topic"),
        ({"group.protocol": "consumer"}, "KIP-848"),
    ],
)
def test_a_bad_setting_is_named(config: dict[str, Any], says: str) -> None:
    """The message says which setting, and what to write."""
    with pytest.raises(SettingError, match=says):
        parse_queue_settings("orders", {**PLAIN, **config})


def test_a_queue_is_not_on_its_own_markers() -> None:
    """Who mistakes the one topic for the other is told so, before topics are made for it."""
    with pytest.raises(SettingError, match="is the markers topic of a queue of group 'g'"):
        parse_queue_settings("orders.g.markers", PLAIN)


def test_no_secret_is_shown() -> None:
    """Neither a password nor a user is in what is printed of the settings."""
    secret = {"sasl.password": "hush", "sasl.username": "me", "sasl.mechanism": "PLAIN"}
    found = parse_queue_settings("orders", {**PLAIN, **secret, "security.protocol": "SASL_SSL"})
    assert found.client_config["sasl.password"] == "hush"
    assert "hush" not in repr(found)


def test_a_kind_that_does_not_exist_is_named() -> None:
    """The kinds that there are stand in the message."""
    with pytest.raises(SettingError, match="kmq, ordered, share"):
        open_queue("sqs", "orders", PLAIN)


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({}, "upgrade"),
        ({"share.version": {"supported": (0, 1)}}, "switched off"),
        ({"share.version": {"supported": (0, 1), "finalized": (0, 0)}}, "share.version=1"),
    ],
)
def test_a_broker_without_share_groups_is_named(features: Any, says: str) -> None:
    """It says whether the version or the feature is missing, and that kmq needs neither."""
    with pytest.raises(ShareGroupsUnsupportedError, match=says):
        require_share_version(features, "localhost:1")
    with pytest.raises(ShareGroupsUnsupportedError, match="kmq"):
        require_share_version(features, "localhost:1")


@pytest.mark.parametrize("value", [b"", b"{}", b'{"v":2,"k":"end","r":[]}', b'{"v":1,"k":"?"}'])
def test_what_is_no_marker_is_refused(value: bytes) -> None:
    """Foreign bytes, and markers of a later version, are told apart from ours."""
    with pytest.raises(InvalidPayloadError):
        decode_marker(value)


def test_the_command_asks_for_the_group(capsys: pytest.CaptureFixture[str]) -> None:
    """`trimtab redeliver` without a group ends with 2 and says what is missing."""
    assert main(["redeliver", "--topic", "orders", "--bootstrap", "localhost:1"]) == 2
    assert "--group is missing" in capsys.readouterr().err
