"""Errors of the consumer SDK, on the two branches of `trimtab.assignor.errors`.

CallerError
├── SettingError
│   ├── InvalidSetting           librdkafka refuses the configuration (exit code 2)
│   └── TableCollision           two topics would land in one table without having been told to
├── ConsumerClosed               a closed consumer was used
├── TableMismatch                a table's columns do not fit the rows that are to land in it
├── TransformFailed              the user's transform, or a value on its way into a column, failed
└── OffsetsWentBack              a topic hands out offsets that its table already holds
PeerError
├── BrokerUnreachable            no broker answered (retryable)
├── MembershipFailed             the group cannot be joined, or threw us out for good
└── LakeError                    what the lake's side does wrong; never raised itself
    ├── SessionFailed            Spark did not start, or its JVM is gone
    ├── MarksLost                a table's history no longer says which offsets it holds
    ├── LakeUnavailable          catalog or storage do not answer, or are locked (retryable)
    │   └── DiskFull             no room for the data files (retryable)
    └── CommitRaced              another writer changed the table first (retryable)
"""

from typing import ClassVar

from trimtab.assignor.errors import CallerError, PeerError, SettingError


class InvalidSetting(SettingError):
    """librdkafka refuses the configuration."""


class ConsumerClosed(CallerError):
    """A closed consumer was used."""


class BrokerUnreachable(PeerError):
    """No broker answered; `bootstrap` is the address that was tried."""

    retryable: ClassVar[bool] = True

    def __init__(self, bootstrap: str) -> None:
        super().__init__(
            f"no Kafka broker answers at {bootstrap}: is it running, and is the address "
            "(bootstrap.servers), security.protocol and firewall right?"
        )
        self.bootstrap = bootstrap


class MembershipFailed(PeerError):
    """The group cannot be joined, or threw us out for good."""


class TableCollision(SettingError):
    """Two topics would land in one table without having been told to."""


class TableMismatch(CallerError):
    """A table's columns do not fit the rows that are to land in it; no offset has moved."""


class TransformFailed(CallerError):
    """The user's transform, or a value on its way into a column, failed; no offset has moved."""


class OffsetsWentBack(CallerError):
    """A topic hands out offsets that its table already holds: it was deleted and created anew."""


class LakeError(PeerError):
    """Base of what the lake's side does wrong; never raised itself."""


class SessionFailed(LakeError):
    """Spark did not start, or its JVM is gone."""


class MarksLost(LakeError):
    """A table has rows but its history no longer says up to which offsets; or says it illegibly."""


class LakeUnavailable(LakeError):
    """The catalog or the storage does not answer, or is locked."""

    retryable: ClassVar[bool] = True


class DiskFull(LakeUnavailable):
    """The storage has no room for the data files."""


class CommitRaced(LakeError):
    """Another writer changed the table between reading its marks and committing."""

    retryable: ClassVar[bool] = True
