"""The informer of resources: what it knows when, pauses between tries, and what it logs."""

import json
import logging
from collections.abc import Callable, Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import MaxRetryError

from trimtab.sidecar.custom_resource.resource_api import MISSING_DEFINITION
from trimtab.sidecar.targets.kubernetes.object_informer import ObjectInformer, WatchedObjects

Eventually = Callable[..., None]

BODY: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "shop", "uid": "u", "generation": 1, "resourceVersion": "7"},
    "spec": {"group": "lake"},
}


class ScriptedStream:
    """The response to a watch."""

    status = 200

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def stream(self, *_args: object, **_options: object) -> Iterator[bytes]:
        return iter(self._lines)

    def close(self) -> None:
        """Nothing to close."""

    def release_conn(self) -> None:
        """Nothing to release."""


class ScriptedServer:
    """Answers lists with one resource or an error; a watch ends at once, or with these lines."""

    def __init__(self, *errors: Exception) -> None:
        self.errors: list[Exception] = list(errors)
        self.events: list[dict[str, Any]] = []
        self.watches: list[str] = []
        self.pauses: list[float] = []
        self.stop = Event()
        self.note: Callable[[], object] = lambda: None
        self.noted: list[object] = []

    def request(self, **options: Any) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        if not options.get("watch"):
            body = {"metadata": {"resourceVersion": "7"}, "items": [BODY]}
            return SimpleNamespace(data=json.dumps(body).encode())
        self.watches.append(options["resource_version"])
        lines, self.events = self.events, []
        if not lines:
            self.stop.wait(0.01)
        return ScriptedStream([f"{json.dumps(line)}\n".encode() for line in lines])

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.noted.append(self.note())
        return False


@pytest.fixture
def started() -> Any:
    opened: list[ObjectInformer] = []
    watched = WatchedObjects("consumergroupscalers", "shop", MISSING_DEFINITION)

    def start(server: ScriptedServer) -> ObjectInformer:
        opened.append(ObjectInformer(server.request, watched, server.wait))
        server.note = opened[-1].list_objects
        opened[-1].start()
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_resources_are_unknown_before_the_first_list(started: Any, eventually: Eventually) -> None:
    """None is not an empty list: groups known before are not closed."""
    server = ScriptedServer(ApiException(status=500))
    informer = started(server)
    eventually(informer.list_objects)
    assert server.noted == [None]  # during the pause after the first try
    assert informer.list_objects() == (BODY,)


def test_a_watch_is_resumed_where_it_ended(started: Any, eventually: Eventually) -> None:
    """A change and a deletion arrive, and the next watch begins after them."""
    server = ScriptedServer()
    informer = started(server)
    eventually(informer.list_objects)
    changed = {
        "metadata": {**BODY["metadata"], "generation": 2, "resourceVersion": "9"},
        "spec": {"group": "x"},
    }
    server.events = [{"type": "MODIFIED", "object": changed}]
    eventually(lambda: informer.list_objects() == (changed,))
    eventually(lambda: server.watches[-1] == "9")
    server.events = [{"type": "DELETED", "object": changed}]
    eventually(lambda: informer.list_objects() == ())


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ApiException(status=404), "consumergroupscalers.trimtab.io is not defined in this cluster; apply"),
        (
            ApiException(status=403),
            "not allowed to list and watch consumergroupscalers in namespace shop; add",
        ),
        (MaxRetryError(None, "", None), "consumergroupscalers cannot be watched now: MaxRetryError"),  # type: ignore[arg-type]
    ],
)
def test_an_outage_is_logged_once_and_tries_have_pauses(
    started: Any, eventually: Eventually, caplog: pytest.LogCaptureFixture, error: Exception, message: str
) -> None:
    """The line says what to do, without a stack; pauses grow, and the resources are known in the end."""
    server = ScriptedServer()
    informer = started(server)
    eventually(informer.list_objects)
    with caplog.at_level(logging.WARNING):
        server.errors = [error, error, error]
        eventually(lambda: len(server.pauses) == 3)
    assert server.pauses == [1.0, 2.0, 4.0]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert message in lines[0]
    assert informer.list_objects()


def test_a_watch_that_is_too_old_lists_again(started: Any, eventually: Eventually) -> None:
    """410 Gone is no outage: no pause, and a new list."""
    server = ScriptedServer()
    informer = started(server)
    eventually(informer.list_objects)
    server.errors.append(ApiException(status=410))
    eventually(lambda: not server.errors)
    eventually(lambda: server.watches[-1] == "7")
    assert not server.pauses
