"""Faults of the object store and of its catalog, injected by the proxies in front of them."""

from collections.abc import Callable, Mapping
from threading import Event, Lock
from typing import Final

from faults.schedule import Fault
from object_store.proxy import (
    Answer,
    Exchange,
    Picks,
    Request,
    Treat,
    any_request,
    cut_upload,
    is_upload,
    lose_answer,
    refuse,
)
from object_store.rig import ObjectStoreRig

TARGET_SECONDS: Final = 60.0  # until there is a request to spoil
TICK: Final = 0.05

SPOILED: Final[Mapping[str, tuple[Picks, Treat]]] = {
    "store-slow-down": (any_request, refuse(503, "SlowDown")),
    "store-conflict": (is_upload, refuse(409, "OperationAborted")),
    "store-cut-upload": (is_upload, cut_upload),
    "store-lost-answer": (is_upload, lose_answer),
    "store-expired-token": (any_request, refuse(400, "ExpiredToken")),
}
"""By kind of fault: which requests it spoils, and how."""

BEFORE, AFTER = "catalog-before-commit", "catalog-after-commit"


class StoreInjector:
    """Injects faults into a rig, each on the calling thread."""

    def __init__(self, rig: ObjectStoreRig) -> None:
        self._rig = rig
        self._pause = Event()
        self._catalog = Lock()

    def kinds(self) -> dict[str, Callable[[Fault], str]]:
        """Return what injects each kind of fault and returns its target, "" without one."""
        return {**dict.fromkeys(SPOILED, self._spoil), BEFORE: self._kill_catalog, AFTER: self._kill_catalog}

    def _spoil(self, fault: Fault) -> str:
        """Spoil requests for the fault's seconds, and until there was one."""
        name, store = f"{fault.kind} {fault.at}", self._rig.store
        with store.spoiling(name, *SPOILED[fault.kind]):
            self._pause.wait(fault.seconds)
            return "store" if self._await(lambda: store.spoiled[name] > 0) else ""

    def _kill_catalog(self, fault: Fault) -> str:
        """Kill the catalog at a commit, just before or just after it is made."""
        server, catalog = self._rig.server, self._rig.catalog
        assert server is not None
        assert catalog is not None
        hit = Event()

        def treat(exchange: Exchange) -> Answer | None:
            if fault.kind == AFTER:
                exchange.forward()
            hit.set()
            server.kill()
            return None

        with self._catalog:
            with catalog.spoiling(fault.kind, lambda request: is_commit(request) and not hit.is_set(), treat):
                self._await(hit.is_set)
            if hit.is_set():
                self._pause.wait(fault.seconds)
                server.kill()  # waits for the end
                server.start()
        return "catalog" if hit.is_set() else ""

    def _await(self, condition: Callable[[], bool]) -> bool:
        for _ in range(round(TARGET_SECONDS / TICK)):
            if condition():
                return True
            self._pause.wait(TICK)
        return False


def is_commit(request: Request) -> bool:
    """Return whether a request commits to a table of a REST catalog."""
    return request.method == "POST" and "/tables/" in request.path and not request.path.endswith("/metrics")
