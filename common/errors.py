"""Error tree of Trimtab.

TrimtabError                       base of every error; never raised itself
├── CallerError                    invalid input; retrying does not help
│   ├── SettingError               a setting is unknown, malformed or contradictory (exit code 2)
│   │   ├── UnknownHeuristicError  no heuristic of that name is registered
│   │   ├── BrokenHeuristicError   a heuristic does not load, fails or returns invalid bins
│   │   └── ShareGroupsUnsupportedError  broker or client library lacks share groups (KIP-932)
│   ├── InvalidProblemError        weights, capacities or members that cannot be assigned
│   └── InvalidStreamError         a stream file has an invalid format
└── PeerError                      failure of a broker, a member, a catalog
    ├── InvalidPayloadError        bytes of a group member or a control topic cannot be decoded
    ├── SaslAuthenticationError    brokers refuse the SASL login, or no token is available
    │   └── TokenEndpointError     an OIDC token endpoint refuses the client or its answer is unusable
    │       └── TokenEndpointUnavailableError  it is unreachable, slow or overloaded (retryable)
    └── TlsHandshakeError          TLS handshake fails: certificate, host name, plain listener

`consumer_sdk.errors` and `sidecar.errors` extend the same two branches.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class TrimtabError(Exception):
    """Base of the tree. The message says what is wrong, where, and what to do."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1


class CallerError(TrimtabError):
    """The input is invalid; retrying does not help."""


class SettingError(CallerError):
    """A setting is unknown, malformed or contradicts another."""

    exit_code: ClassVar[int] = 2


class UnknownHeuristicError(SettingError):
    """No heuristic of that name is registered."""


class BrokenHeuristicError(SettingError):
    """A heuristic does not load, lacks a package, fails or returns invalid bins."""


class ShareGroupsUnsupportedError(SettingError):
    """Broker or client library lacks share groups (KIP-932), or they are switched off."""


class InvalidProblemError(CallerError):
    """Weights, capacities or members that cannot be assigned."""


class InvalidStreamError(CallerError):
    """A stream file has an invalid format."""

    exit_code: ClassVar[int] = 2


class PeerError(TrimtabError):
    """A peer failed or is unreachable."""


class InvalidPayloadError(PeerError):
    """Bytes from a group member or a control topic that cannot be decoded."""


class SaslAuthenticationError(PeerError):
    """Brokers refuse the SASL login, or no token is available."""


class TokenEndpointError(SaslAuthenticationError):
    """An OIDC token endpoint refuses the client, or its answer holds no usable token."""


class TokenEndpointUnavailableError(TokenEndpointError):
    """An OIDC token endpoint is unreachable, slow or overloaded."""

    retryable: ClassVar[bool] = True


class TlsHandshakeError(PeerError):
    """The TLS handshake fails: untrusted certificate, wrong host name or plain listener."""


def suggest_name(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return "; did you mean 'mbf'?" with the nearest known name, "" without one; `cutoff` as in difflib."""
    nearest = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
