"""Errors of the sidecar, on the two branches of `trimtab.common.errors`.

CallerError
├── SettingError
│   ├── SidecarSettingError          a setting is unknown, malformed or contradictory (exit code 2)
│   ├── StateDirInUseError           another sidecar works with this state folder (exit code 2)
│   ├── TriggerMismatchError         KEDA's trigger means another group, or nothing (exit code 2)
│   └── GroupTypeMismatchError       the group is of another kind than the queue (exit code 2)
└── StartupError                     a worker, the web page or KEDA's service cannot be started
PeerError
├── BrokerTimeoutError               no answer from a broker in time, or a refusal (retryable)
│   └── NoBrokersAvailableError      nobody answers at all (retryable)
├── StateDirError                    the state folder cannot be read or written (retryable)
├── ReplicaCountUnavailableError     KEDA cannot be told a count now (retryable)
├── KubernetesUnavailableError       the API server does not answer, or is overloaded (retryable)
├── KubernetesRejectedError          a right, a workload or a valid value is missing (retryable)
├── NotLeaderError                   another sidecar may be at work by now (retryable)
└── ScalingPostponedError            another pod than the one meant might go (retryable)
"""

from typing import ClassVar

from trimtab.common.errors import CallerError, PeerError, SettingError


class SidecarSettingError(SettingError):
    """A setting is unknown, malformed or contradicts another."""


class StateDirInUseError(SettingError):
    """Another sidecar works with this state folder."""


class TriggerMismatchError(SettingError):
    """KEDA's trigger names another group than the one that is steered, or what is not known."""


class GroupTypeMismatchError(SettingError):
    """The group is of another kind than the queue that is to be scaled."""


class StartupError(CallerError):
    """A worker, the web page or KEDA's service cannot be started."""


class BrokerTimeoutError(PeerError):
    """No answer from a broker in time, or a refusal; the loop goes on and asks again."""

    retryable: ClassVar[bool] = True


class NoBrokersAvailableError(BrokerTimeoutError):
    """No broker answers at all: whatever else is asked will not be answered either."""


class StateDirError(PeerError):
    """The state folder cannot be read or written; the loop goes on and tries again."""

    retryable: ClassVar[bool] = True


class ReplicaCountUnavailableError(PeerError):
    """KEDA cannot be told a count now; it asks again, or falls back as it was told."""

    retryable: ClassVar[bool] = True


class KubernetesUnavailableError(PeerError):
    """The API server does not answer, or is overloaded; the loop goes on and asks again."""

    retryable: ClassVar[bool] = True


class KubernetesRejectedError(PeerError):
    """A right, a workload or a valid value is missing; the loop goes on, it may be mended.

    `status` is that of the answer (HTTP).
    """

    retryable: ClassVar[bool] = True

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ScalingPostponedError(PeerError):
    """Another pod than the one meant might go; the loop goes on and tries again."""

    retryable: ClassVar[bool] = True


class NotLeaderError(PeerError):
    """Another sidecar may be at work by now; nothing is begun, and it goes on."""

    retryable: ClassVar[bool] = True
