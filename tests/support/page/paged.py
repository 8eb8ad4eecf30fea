"""The sidecar's web server with an empty history."""

from trimtab.common.clock import Clock, SystemClock
from trimtab.sidecar.records.decision_record import RecordTerms
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.web_server import SidecarWebServer

TERMS = RecordTerms("g", 10.0, 100.0, 0.8)


def create_web_server(clock: Clock | None = None, group: str = "g") -> SidecarWebServer:
    """Return a web server that is healthy for 30 s after an iteration."""
    return SidecarWebServer(group, clock or SystemClock(), 30.0, GroupHistory(TERMS))
