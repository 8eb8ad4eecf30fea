"""State files of the `process` target, and commit metadata of handovers and releases."""

import json
import tempfile
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.consumer.partition_state import PartitionState
from trimtab.sidecar.errors import StateDirError
from trimtab.sidecar.measurement.handover_time import HandoverTracker
from trimtab.sidecar.targets.process.process_target import ProcessTarget, parse_worker
from trimtab.sidecar.targets.process.rolling_restart import RESTART_REQUEST_FILE, list_pending_restarts

SEEDS: Final = {
    "read_worker": [b'{"name": "w", "started": 1.7e9, "pid": 7, "ticks": 9, "stopping_since": 5.5}'],
    "read_restart_request": [b'["worker-1", "worker-2"]'],
    "read_last_number": [b"7", b" 12\n"],
    "read_handover": [b'{"handover": 0.5, "at": 1700000000}'],
    "read_release_time": [b'{"released": 1700000000.5}\0'],
}


def read_worker(data: bytes) -> None:
    """A state file names its own worker, or none."""
    worker = parse_worker(data, "w")
    assert worker is None or (worker.name == "w" and worker.is_alive in (True, False))


def read_restart_request(data: bytes) -> None:
    """A request that cannot be read is dropped."""
    (_state_dir() / RESTART_REQUEST_FILE).write_bytes(data)
    assert set(list_pending_restarts(_state_dir(), ["worker-1"])) <= {"worker-1"}


def read_last_number(data: bytes) -> None:
    """A number that cannot be read is refused with its file."""
    (_state_dir() / "last").write_bytes(data)
    with suppress(StateDirError):
        assert _target()._allocate_worker_name().startswith("worker-")


def read_handover(data: bytes) -> None:
    """Any client writes metadata into its commits; a handover's figures are finite."""
    partition = TopicPartition("t", 0)
    durations, tracker = HandoverTracker(0.0).collect_handovers({partition: data.decode(errors="replace")})
    assert all(0 <= seconds < inf for seconds in durations.values())
    later = '{"handover": 1, "at": 1e308}'
    assert tracker.collect_handovers({partition: later})[0] in ({partition: 1.0}, {})


def read_release_time(data: bytes) -> None:
    """A release's time is finite, and so is the handover that the next owner commits."""
    state = PartitionState()
    committed: Any = SimpleNamespace(topic="t", partition=0, metadata=data.decode(errors="replace"))
    state.record_release_time(committed)
    state.record_first_read(TopicPartition("t", 0), 1.7e9)
    for metadata in state.commit_metadata.values():
        assert 0 <= json.loads(metadata.rstrip("\0"))["handover"] <= 1.7e9


@cache
def _state_dir() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-"))


@cache
def _target() -> ProcessTarget:
    return ProcessTarget(("true",), _state_dir(), SystemClock())
