"""Errors of the command, on the two branches of `trimtab.common.errors`.

CallerError
├── NoDecisionsError           no verdict of a group is kept that could explain it
├── GroupNotFoundError         there is no trace of the group that is asked for
└── SettingError
    ├── PortInUseError         another process listens on the port (exit code 2)
    └── BrokerDataInUseError   another broker works with this data folder (exit code 2)
PeerError
├── EmbeddedBrokerError        the embedded broker did not start, or ended by itself
├── SimulationWorkerLostError  a process of a simulation was killed
└── DemoFailedError            the demo could not be played to its end
"""

from collections.abc import Iterable
from pathlib import Path

from trimtab.common.errors import CallerError, PeerError, SettingError


class NoDecisionsError(CallerError):
    """No verdict of a group is kept that could explain it."""


class GroupNotFoundError(CallerError):
    """There is no trace of the group: no member, no commit, no plan, no verdict.

    `trouble` is what else was found to be wrong, a topic that does not exist for example.
    """

    def __init__(self, group: str, trouble: Iterable[str] = ()) -> None:
        also = "".join(f"; {one}" for one in trouble)
        super().__init__(
            f"there is no group {group!r}: no member, no commit, no plan and no verdict{also}; is "
            "its name right (kafka-groups.sh --list names them all)? A share group is looked at "
            "with queue: share in --config"
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
    """Another broker works with this data folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"another broker works with {folder}: stop it, or choose another folder")
        self.folder = folder


class EmbeddedBrokerError(PeerError):
    """The embedded broker did not start, or ended by itself; `log` holds its last lines."""

    def __init__(self, failure: str, log: str) -> None:
        super().__init__(f"{failure}; the broker's last words:\n{log or '(nothing)'}")
        self.log = log


class SimulationWorkerLostError(PeerError):
    """A process of a simulation was killed; `cores` is how many there were."""

    def __init__(self, cores: int) -> None:
        super().__init__(
            f"one of {cores} simulating processes was killed, perhaps for want of memory; "
            "try --jobs 1, or fewer ticks or partitions"
        )
        self.cores = cores


class DemoFailedError(PeerError):
    """The demo could not be played to its end."""
