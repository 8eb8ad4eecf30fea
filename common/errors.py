"""Errors of the assignor.

TrimtabError                       base of every error that Trimtab raises; never raised itself
├── CallerError                    the caller's fault: mend the input; retrying does not help
│   ├── SettingError               a setting is unknown, malformed or contradictory (exit code 2)
│   │   ├── UnknownHeuristicError  no heuristic of that name is registered
│   │   ├── BrokenHeuristicError   a heuristic cannot load, fails, or gives nonsense
│   │   └── ShareGroupsUnsupportedError  broker or client library lacks share groups (KIP-932)
│   ├── InvalidProblemError        weights, capacities or members that cannot be assigned
│   └── InvalidStreamError         a stream file that is not in the stream format
└── PeerError                      the other side's fault: a broker, a member, a catalog
    ├── InvalidPayloadError        bytes of a group member or a control topic cannot be decoded
    ├── SaslAuthenticationError    the brokers do not take our login (SASL), or there is no token
    └── TlsHandshakeError          TLS cannot be agreed on: a certificate, a name, a plain listener

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


class UnknownHeuristicError(SettingError):
    """No heuristic of that name is registered."""


class BrokenHeuristicError(SettingError):
    """A heuristic cannot load, lacks a package, fails, or gives nonsense."""


class ShareGroupsUnsupportedError(SettingError):
    """Broker or client library lacks share groups (KIP-932), or they are switched off."""


class InvalidProblemError(CallerError):
    """Weights, capacities or members that cannot be assigned."""


class InvalidStreamError(CallerError):
    """A stream file that is not in the stream format."""

    exit_code: ClassVar[int] = 2


class PeerError(TrimtabError):
    """The other side misbehaved or is away."""


class InvalidPayloadError(PeerError):
    """Bytes from a group member or a control topic that cannot be decoded."""


class SaslAuthenticationError(PeerError):
    """The brokers do not take our login (SASL), or there is no token; waiting does not help."""


class TlsHandshakeError(PeerError):
    """TLS cannot be agreed on: an untrusted certificate, another host's, or a plain listener."""
