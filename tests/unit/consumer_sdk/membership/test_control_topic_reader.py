"""Control topic reader without a broker."""

from threading import Event
from typing import Any

import pytest

from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.consumer.settings import parse_consumer_settings
from trimtab.consumer_sdk.membership import control_topic_reader
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader


def test_a_client_that_does_not_close_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A close that never returns does not keep the process from ending."""
    closing, released = Event(), Event()

    class Stuck:
        def __init__(self, _: Any) -> None:
            """Accept any settings."""

        def assignment(self) -> list[Any]:
            return []

        def list_topics(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no broker")

        def close(self) -> None:
            closing.set()
            released.wait()

    monkeypatch.setattr(control_topic_reader, "DataConsumer", Stuck)
    monkeypatch.setattr(control_topic_reader, "CONTROL_CLIENT_CLOSE_TIMEOUT_S", 0.1)
    reader = ControlTopicReader(
        parse_consumer_settings({"bootstrap.servers": "x:1", "group.id": "g"}), SystemClock()
    )
    reader.start()
    try:
        reader.stop()
        assert closing.wait(10)
    finally:
        released.set()
