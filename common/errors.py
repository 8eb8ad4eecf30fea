"""Errors of the assignor.

TrimtabError                     base of every error that Trimtab raises; never raised itself
├── CallerError                  the caller's fault: mend the input; retrying does not help
│   ├── SettingError             a setting is unknown, malformed or contradictory (exit code 2)
│   │   ├── UnknownHeuristic     no heuristic of that name is registered
│   │   └── BrokenHeuristic      a heuristic cannot load, lacks a package, fails, or gives nonsense
│   ├── BadProblem               weights, capacities or members that cannot be assigned
│   └── BadStream                a stream file that is not in the stream format
└── PeerError                    the other side's fault: a broker, a member, a catalog
    ├── BadPayload               bytes from a group member or a control topic that cannot be decoded
    ├── LoginRefused             the brokers do not take our login (SASL), or there is no token
    └── TlsFailed                TLS cannot be agreed on: a certificate, a name, a plain listener

`consumer_sdk.errors` and `sidecar.errors` add their own leaves to the same two branches.
"""

from typing import ClassVar


class TrimtabError(Exception):
    """Base of the tree; says what was wrong, where, and what to do."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1


class CallerError(TrimtabError):
    """The caller gave something that cannot work."""


class SettingError(CallerError):
    """A setting is unknown, malformed or contradicts another."""

    exit_code: ClassVar[int] = 2


class UnknownHeuristic(SettingError):
    """No heuristic of that name is registered."""


class BrokenHeuristic(SettingError):
    """A heuristic cannot load, lacks a package, fails, or gives nonsense."""


class BadProblem(CallerError):
    """Weights, capacities or members that cannot be assigned."""


class BadStream(CallerError):
    """A stream file that is not in the stream format."""

    exit_code: ClassVar[int] = 2


class PeerError(TrimtabError):
    """The other side misbehaved or is away."""


class BadPayload(PeerError):
    """Bytes from a group member or a control topic that cannot be decoded."""


class LoginRefused(PeerError):
    """The brokers do not take our login (SASL), or there is no token; waiting does not help."""


class TlsFailed(PeerError):
    """TLS cannot be agreed on: an untrusted certificate, another host's, or a plain listener."""
