"""Errors of the command, on the two branches of `trimtab.common.errors`.

CallerError
├── NoDecisionsError           no decision on the group is kept
├── GroupNotFoundError         the group has no members, commits, plan or decisions
└── SettingError
    ├── PortInUseError         another process listens on the port (exit code 2)
    └── BrokerDataInUseError   another broker uses this data folder (exit code 2)
PeerError
├── EmbeddedBrokerError        the embedded broker did not start, or crashed
├── SimulationWorkerLostError  a process of a simulation was killed
└── DemoFailedError            the demo failed
"""

from collections.abc import Iterable
from pathlib import Path

from trimtab.common.errors import CallerError, PeerError, SettingError


class NoDecisionsError(CallerError):
    """No decision on the group is kept."""


class GroupNotFoundError(CallerError):
    """The group has no members, commits, plan or decisions; `errors` lists other problems."""

    def __init__(self, group: str, errors: Iterable[str] = ()) -> None:
        also = "".join(f"; {one}" for one in errors)
        super().__init__(
            f"there is no group {group!r}: no member, no commit, no plan and no decision{also}; is "
            "its name right (kafka-groups.sh --list)? For a share group, set queue: share in --config"
        )
        self.group = group


class PortInUseError(SettingError):
    """Another process listens on the port."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"port {port} of 127.0.0.1 is in use: stop what listens there "
            f"(ss -ltnp 'sport = :{port}' shows it), or choose another port; 0 takes a free one"
        )
        self.port = port


class BrokerDataInUseError(SettingError):
    """Another broker uses this data folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"another broker uses {folder}: stop it, or choose another folder")
        self.folder = folder


class EmbeddedBrokerError(PeerError):
    """The embedded broker did not start, or crashed; `log` holds its last lines."""

    def __init__(self, failure: str, log: str) -> None:
        super().__init__(f"{failure}; the end of its log:\n{log or '(empty)'}")
        self.log = log


class SimulationWorkerLostError(PeerError):
    """A process of a simulation was killed; `cores` is the number of processes."""

    def __init__(self, cores: int) -> None:
        super().__init__(
            f"one of {cores} simulation processes was killed, perhaps because memory ran out; "
            "try --jobs 1, or fewer ticks or partitions"
        )
        self.cores = cores


class DemoFailedError(PeerError):
    """The demo failed."""
