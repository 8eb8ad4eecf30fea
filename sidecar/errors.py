"""Errors of the sidecar, on the two branches of `trimtab.common.errors`.

CallerError
├── SettingError
│   ├── SidecarSettingError          a setting is unknown, malformed or contradictory (exit code 2)
│   ├── StateDirInUseError           another sidecar uses this state folder (exit code 2)
│   ├── TriggerMismatchError         KEDA's trigger names another group or key (exit code 2)
│   └── GroupTypeMismatchError       the group's type does not match the queue (exit code 2)
└── StartupError                     a worker, the web server or the KEDA service cannot start
PeerError
├── BrokerTimeoutError               a broker did not answer in time, or refused (retryable)
│   └── NoBrokersAvailableError      no broker answers (retryable)
├── StateDirError                    the state folder cannot be read or written (retryable)
├── ReplicaCountUnavailableError     no replica count for KEDA now (retryable)
├── KubernetesUnavailableError       the API server is unavailable or overloaded (retryable)
├── KubernetesRejectedError          a permission, workload or valid value is missing (retryable)
├── NotLeaderError                   another sidecar may be active (retryable)
└── ScalingPostponedError            Kubernetes might remove another pod than requested (retryable)
"""

from importlib.util import find_spec
from typing import ClassVar

from trimtab.common.errors import CallerError, PeerError, SettingError


class SidecarSettingError(SettingError):
    """A setting is unknown, malformed or contradicts another."""


class StateDirInUseError(SettingError):
    """Another sidecar uses this state folder."""


class TriggerMismatchError(SettingError):
    """KEDA's trigger names another group than the managed one, or unknown keys."""


class GroupTypeMismatchError(SettingError):
    """The group's type does not match the queue."""


class StartupError(CallerError):
    """A worker, the web server or the KEDA service cannot start."""


class BrokerTimeoutError(PeerError):
    """A broker did not answer in time, or refused; the next iteration retries."""

    retryable: ClassVar[bool] = True


class NoBrokersAvailableError(BrokerTimeoutError):
    """No broker answers; further requests in this iteration would fail, too."""


class StateDirError(PeerError):
    """The state folder cannot be read or written; the next iteration retries."""

    retryable: ClassVar[bool] = True


class ReplicaCountUnavailableError(PeerError):
    """No replica count for KEDA now; KEDA retries or applies its fallback."""

    retryable: ClassVar[bool] = True


class KubernetesUnavailableError(PeerError):
    """The API server is unavailable or overloaded; the next iteration retries."""

    retryable: ClassVar[bool] = True


class KubernetesRejectedError(PeerError):
    """A permission, workload or valid value is missing; every iteration retries.

    `status` is the HTTP status.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ScalingPostponedError(PeerError):
    """Kubernetes might remove another pod than requested; the next iteration retries."""

    retryable: ClassVar[bool] = True


class NotLeaderError(PeerError):
    """Another sidecar may be active; this one changes nothing and continues."""

    retryable: ClassVar[bool] = True


def require_extra(setting: str, extra: str, *modules: str) -> None:
    """Raise StartupError if a setting's modules are not installed."""
    # find_spec imports nothing: a missing module is reported as the extra that has it
    if any(find_spec(name) is None for name in modules):
        raise StartupError(f"{setting} needs an extra: pip install 'trimtab[{extra}]'")
