"""A queue's settings and the broker's features are checked before any topic is created."""

from typing import Any

import pytest

from trimtab.cli.main import main
from trimtab.common.errors import InvalidPayloadError, SettingError, ShareGroupsUnsupportedError
from trimtab.consumer_sdk.errors import UnsupportedByProtocolError, UnsupportedQueueOperationError
from trimtab.consumer_sdk.queues import RedeliveryTracker, open_queue
from trimtab.consumer_sdk.queues.kmq.markers import decode_marker
from trimtab.consumer_sdk.queues.settings import check_kind, parse_queue_settings
from trimtab.consumer_sdk.queues.share.broker_features import require_share_version

PLAIN = {"bootstrap.servers": "localhost:1", "group.id": "g"}


def test_topic_names_are_derived_from_topic_and_group() -> None:
    """Markers and dead letters have topics per group; a given name takes precedence."""
    settings = parse_queue_settings("orders", PLAIN)
    assert (settings.markers_topic, settings.dead_letter_topic) == ("orders.g.markers", "orders.g.dead")
    assert settings.tracker_group == "g-redeliver"
    assert parse_queue_settings("orders", {**PLAIN, "trimtab.queue.markers": "m"}).markers_topic == "m"


@pytest.mark.parametrize(
    ("config", "message"),
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
    ],
)
def test_an_invalid_setting_is_named(config: dict[str, Any], message: str) -> None:
    """The error names the setting and a remedy."""
    with pytest.raises(SettingError, match=message):
        parse_queue_settings("orders", {**PLAIN, **config})


AT_MOST_ONCE = {**PLAIN, "trimtab.queue.guarantee": "at-most-once"}


@pytest.mark.parametrize("kind", ["kmq", "share"])
def test_a_guarantee_that_a_kind_lacks_is_refused(kind: str) -> None:
    """The error names the setting and the kind that has it, before any connection is made."""
    with pytest.raises(UnsupportedQueueOperationError, match=r"queue\.guarantee=at-most-once.*'ordered'"):
        open_queue(kind, "orders", AT_MOST_ONCE)
    with pytest.raises(UnsupportedQueueOperationError, match="guarantee"):
        RedeliveryTracker(parse_queue_settings("orders", AT_MOST_ONCE))


def test_a_share_group_has_a_protocol_of_its_own() -> None:
    """Another one is refused before any connection is made."""
    with pytest.raises(UnsupportedByProtocolError, match="KIP-932"):
        open_queue("share", "orders", {**PLAIN, "group.protocol": "consumer"})


def test_a_setting_without_effect_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """`ordered` has no deadline, and only `kmq` has markers."""
    given = {**PLAIN, "trimtab.queue.timeout": "3 s", "trimtab.queue.markers": "m"}
    for kind, names in (("kmq", set()), ("share", {"markers"}), ("ordered", {"markers", "timeout"})):
        caplog.clear()
        check_kind(kind, parse_queue_settings("orders", given), given)
        assert {
            name for name in ("markers", "timeout") if f"queue.{name} has no effect" in caplog.text
        } == names


def test_a_markers_topic_is_no_queue() -> None:
    """A markers topic in place of the queue's topic is refused before topics are created."""
    with pytest.raises(SettingError, match="is the markers topic of a queue of group 'g'"):
        parse_queue_settings("orders.g.markers", PLAIN)


def test_the_repr_has_no_secret() -> None:
    """The repr of the settings has no password."""
    secret = {"sasl.password": "hush", "sasl.username": "me", "sasl.mechanism": "PLAIN"}
    settings = parse_queue_settings("orders", {**PLAIN, **secret, "security.protocol": "SASL_SSL"})
    assert settings.client_config["sasl.password"] == "hush"
    assert "hush" not in repr(settings)


def test_an_unknown_kind_is_named() -> None:
    """The error lists the kinds."""
    with pytest.raises(SettingError, match="kmq, ordered, share"):
        open_queue("sqs", "orders", PLAIN)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({}, "upgrade"),
        ({"share.version": {"supported": (0, 1)}}, "switched off"),
        ({"share.version": {"supported": (0, 1), "finalized": (0, 0)}}, "share.version=1"),
    ],
)
def test_a_broker_without_share_groups_is_named(features: Any, message: str) -> None:
    """The error names the missing version or feature, and `kmq`, which needs neither."""
    with pytest.raises(ShareGroupsUnsupportedError, match=message):
        require_share_version(features, "localhost:1")
    with pytest.raises(ShareGroupsUnsupportedError, match="kmq"):
        require_share_version(features, "localhost:1")


@pytest.mark.parametrize("value", [b"", b"{}", b'{"v":2,"k":"end","r":[]}', b'{"v":1,"k":"?"}'])
def test_an_invalid_marker_is_refused(value: bytes) -> None:
    """Other bytes and markers of a later version are InvalidPayloadErrors."""
    with pytest.raises(InvalidPayloadError):
        decode_marker(value)


def test_the_redeliver_command_requires_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    """`trimtab redeliver` without a group ends with exit code 2 and names the option."""
    assert main(["redeliver", "--topic", "orders", "--bootstrap", "localhost:1"]) == 2
    assert "--group is missing" in capsys.readouterr().err
