"""Errors of the sidecar, on the two branches of `trimtab.assignor.errors`.

CallerError
├── SettingError
│   ├── BadSetting               a setting is unknown, malformed or contradictory (exit code 2)
│   └── StateInUse               another sidecar works with this state folder (exit code 2)
└── CannotStart                  a worker, or the web page, cannot be started
PeerError
├── KafkaAway                    no answer from a broker in time, or a refusal (retryable)
└── StateUnusable                the state folder cannot be read or written (retryable)
"""

from typing import ClassVar

from trimtab.assignor.errors import CallerError, PeerError, SettingError


class BadSetting(SettingError):
    """A setting is unknown, malformed or contradicts another."""


class StateInUse(SettingError):
    """Another sidecar works with this state folder."""


class CannotStart(CallerError):
    """A worker, or the web page, cannot be started."""


class KafkaAway(PeerError):
    """No answer from a broker in time, or a refusal; the loop goes on and asks again."""

    retryable: ClassVar[bool] = True


class StateUnusable(PeerError):
    """The state folder cannot be read or written; the loop goes on and tries again."""

    retryable: ClassVar[bool] = True
