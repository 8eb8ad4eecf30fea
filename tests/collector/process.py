"""A collector as a process: it receives OTLP and sends what it understood to another receiver."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

from cluster.control_plane import free_ports
from strangers.programs import build_go_program

SOURCES: Final = Path(__file__).parent / "otelcol"
SIGNALS: Final = ("traces", "metrics", "logs")


@contextmanager
def running_collector(folder: Path, target: str) -> Iterator[str]:
    """Yield the endpoint of a collector that sends everything to `target`. Raises BuildFailedError."""
    (port,) = free_ports(1)
    pipeline = {"receivers": ["otlp"], "exporters": ["otlp_http"]}
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"otlp_http": {"endpoint": target}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": dict.fromkeys(SIGNALS, pipeline),
        },
    }
    file = folder / "collector.json"  # JSON is YAML
    file.write_text(json.dumps(config))
    with (folder / "collector.log").open("wb") as log:
        process = subprocess.Popen([build_go_program(SOURCES), "--config", str(file)], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        assert process.wait(30) == 0, (folder / "collector.log").read_text()


def answers(endpoint: str) -> bool:
    """Return whether a collector takes spans."""
    empty = Request(  # noqa: S310 - the test's own address
        f"{endpoint}/v1/traces", b"{}", {"Content-Type": "application/json"}
    )
    try:
        with urlopen(empty, timeout=5) as answer:  # noqa: S310 - as above
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
