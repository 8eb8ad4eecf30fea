"""A connection that fails leaves nothing behind, and is replaced."""

import socket
import threading
from typing import Any
from unittest.mock import Mock

import pytest
from kafka.errors import KafkaConnectionError, KafkaError
from ticking import Ticking

from trimtab.sidecar.kafka import coordinator_client
from trimtab.sidecar.kafka.consumer_groups.consumer_group import ConsumerGroupClient
from trimtab.sidecar.kafka.coordinator_client import CoordinatorClient
from trimtab.sidecar.settings.settings import load_settings

GIVEN = {"bootstrap": "127.0.0.1:1", "group": "g", "capacity": 10}
SETTINGS = load_settings(None, GIVEN)


def count_io_threads() -> int:
    return sum(t.name.startswith("kafka-io-") for t in threading.enumerate())


def test_a_failed_connection_ends_its_thread() -> None:
    """During an outage one is tried every few seconds: each left a thread and its files behind."""
    with socket.socket() as unanswered:
        unanswered.bind(("127.0.0.1", 0))  # refuses: nobody listens
        bootstrap = f"127.0.0.1:{unanswered.getsockname()[1]}"
        settings = load_settings(None, {**GIVEN, "bootstrap": bootstrap, "timeout": 0.1})
        client, before = CoordinatorClient(settings, Ticking()), count_io_threads()
        for _ in range(3):
            with pytest.raises(KafkaError):
                client.call(Mock())
        assert count_io_threads() == before


@pytest.mark.parametrize("crash", [RuntimeError("NetworkSelector closed!"), OSError("out of files")])
def test_a_crashed_connection_is_replaced(crash: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its IO loop has crashed each request raises that error, and the close may."""
    made = [Mock(close=Mock(side_effect=crash)), Mock()]
    monkeypatch.setattr(coordinator_client, "_UNTYPED_ADMIN_CLIENT", Mock(side_effect=list(made)))

    def request(admin: Any) -> str:
        if admin is made[0]:
            raise crash
        return "answered"

    client = CoordinatorClient(SETTINGS, Ticking())
    with pytest.raises(KafkaConnectionError, match=str(crash)):
        client.call(request)
    assert client.retry(request) == "answered"


def test_a_late_error_does_not_close_the_connection_that_has_replaced_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads share a connection that fails; the second one's error comes after the replacement."""
    made = [Mock(), Mock()]
    monkeypatch.setattr(coordinator_client, "_UNTYPED_ADMIN_CLIENT", Mock(side_effect=list(made)))
    client = CoordinatorClient(SETTINGS, Ticking())

    def fail(_: Any) -> None:
        raise KafkaConnectionError("broken")

    def fail_late(_: Any) -> None:
        with pytest.raises(KafkaConnectionError):
            client.call(fail)
        assert client.call(lambda admin: admin) is made[1]
        raise KafkaConnectionError("broken")

    with pytest.raises(KafkaConnectionError):
        client.call(fail_late)
    assert [admin.close.call_count for admin in made] == [1, 0]
    assert client.call(lambda admin: admin) is made[1]


def test_a_crashed_connection_is_an_error_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control loop goes on."""
    crashed = Mock(side_effect=RuntimeError("NetworkSelector closed!"))
    monkeypatch.setattr(coordinator_client, "_UNTYPED_ADMIN_CLIENT", crashed)
    _, errors = ConsumerGroupClient(SETTINGS, Ticking()).describe_group()
    assert "group g: " in str(errors)
    assert "NetworkSelector closed!" in str(errors)
