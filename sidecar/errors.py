"""Errors of the sidecar, on the two branches of `trimtab.common.errors`.

CallerError
├── SettingError
│   ├── BadSetting               a setting is unknown, malformed or contradictory (exit code 2)
│   ├── NoShareGroups            the brokers have no share groups, or not switched on (exit code 2)
│   ├── StateInUse               another sidecar works with this state folder (exit code 2)
│   ├── TriggerMismatch          KEDA's trigger means another group, or nothing (exit code 2)
│   └── WrongGroup               the group is of another kind than the queue (exit code 2)
└── CannotStart                  a worker, the web page or KEDA's service cannot be started
PeerError
├── KafkaAway                    no answer from a broker in time, or a refusal (retryable)
│   └── NoBroker                 nobody answers at all (retryable)
├── StateUnusable                the state folder cannot be read or written (retryable)
├── CountUnknown                 KEDA cannot be told a count now (retryable)
├── KubernetesAway               the API server does not answer, or is overloaded (retryable)
├── KubernetesRefuses            a right, a workload or a valid value is missing there (retryable)
├── NotLeading                   another sidecar may be at work by now (retryable)
└── ScalingWaits                 another pod than the one meant might go (retryable)
"""

from typing import ClassVar

from trimtab.common.errors import CallerError, PeerError, SettingError


class BadSetting(SettingError):
    """A setting is unknown, malformed or contradicts another."""


class NoShareGroups(SettingError):
    """The brokers have no share groups, or they are switched off."""


class StateInUse(SettingError):
    """Another sidecar works with this state folder."""


class TriggerMismatch(SettingError):
    """KEDA's trigger names another group than the one that is steered, or what is not known."""


class WrongGroup(SettingError):
    """The group is of another kind than the queue that is to be scaled."""


class CannotStart(CallerError):
    """A worker, the web page or KEDA's service cannot be started."""


class KafkaAway(PeerError):
    """No answer from a broker in time, or a refusal; the loop goes on and asks again."""

    retryable: ClassVar[bool] = True


class NoBroker(KafkaAway):
    """No broker answers at all: whatever else is asked will not be answered either."""


class StateUnusable(PeerError):
    """The state folder cannot be read or written; the loop goes on and tries again."""

    retryable: ClassVar[bool] = True


class CountUnknown(PeerError):
    """KEDA cannot be told a count now; it asks again, or falls back as it was told."""

    retryable: ClassVar[bool] = True


class KubernetesAway(PeerError):
    """The API server does not answer, or is overloaded; the loop goes on and asks again."""

    retryable: ClassVar[bool] = True


class KubernetesRefuses(PeerError):
    """A right, a workload or a valid value is missing; the loop goes on, it may be mended.

    `status` is that of the answer (HTTP).
    """

    retryable: ClassVar[bool] = True

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ScalingWaits(PeerError):
    """Another pod than the one meant might go; the loop goes on and tries again."""

    retryable: ClassVar[bool] = True


class NotLeading(PeerError):
    """Another sidecar may be at work by now; nothing is begun, and it goes on."""

    retryable: ClassVar[bool] = True
