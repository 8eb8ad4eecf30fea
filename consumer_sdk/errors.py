"""Errors of the consumer SDK, on the two branches of `trimtab.common.errors`.

CallerError
├── SettingError
│   ├── InvalidSetting           librdkafka refuses the configuration (exit code 2)
│   ├── QueueMismatch            the topics of a queue do not fit each other (exit code 2)
│   ├── NotOffered               this kind of queue cannot do what was asked of it (exit code 2)
│   ├── NoShareGroups            the broker, or the client, has no share groups (exit code 2)
│   └── TableCollision           two topics would land in one table without having been told to
├── BadDelay                     a delay, or an extension, of a queue's message is no time
├── NoJava                       no Java is found
├── WrongJava                    the Java that is found is too old or too new
├── MissingExtra                 an optional package is not installed
├── ConsumerClosed               a closed consumer was used
├── TableMismatch                a table's columns do not fit the rows that are to land in it
├── TransformFailed              the user's transform, or a value on its way into a column, failed
├── OffsetsWentBack              a topic hands out offsets that its table already holds
└── OffsetsExpired               records were deleted unread, and auto.offset.reset=error
PeerError
├── BrokerUnreachable            no broker answered (retryable)
├── JarsUnavailable              Java libraries cannot be downloaded (retryable)
├── ReplayFailed                 Kafka did not take dead letters back; they stay in their table
├── RegistryUnavailable          the schema registry does not answer (retryable)
├── MembershipFailed             the group cannot be joined, or threw us out for good
│   └── NotAllowed               a right (ACL) is missing; says which, on what
├── MarkersNotWritten            Kafka did not take a queue's start markers (retryable)
└── LakeError                    what the lake's side does wrong; never raised itself
    ├── SessionFailed            Spark did not start, or its JVM is gone
    ├── MarksLost                a table's history no longer says which offsets it holds
    ├── LakeUnavailable          catalog or storage do not answer, or are locked (retryable)
    │   └── DiskFull             no room for the data files (retryable)
    └── CommitRaced              another writer changed the table first (retryable)
"""

from pathlib import Path
from typing import ClassVar, Final

from trimtab.common.errors import CallerError, PeerError, SettingError

JAVA_ADVICE: Final = (
    "Trimtab needs Java 17 to 24 (Spark 4.1 does not start with 25): install one, for example "
    "openjdk-17-jre-headless, or let JAVA_HOME point to it"
)


class InvalidSetting(SettingError):
    """librdkafka refuses the configuration."""


class NoJava(CallerError):
    """No Java is found; `looked` says where."""

    def __init__(self, looked: str) -> None:
        super().__init__(f"{looked}; {JAVA_ADVICE}")
        self.looked = looked


class WrongJava(CallerError):
    """The Java at `path` is of a version that Spark and Kafka do not both run on."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(f"{path} is Java {version}; {JAVA_ADVICE}")
        self.path = path
        self.version = version


class MissingExtra(CallerError):
    """An optional package is not installed; says which pip command installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed and this needs it: pip install 'trimtab[{extra}]'"
        )
        self.package = package
        self.extra = extra


class ConsumerClosed(CallerError):
    """A closed consumer was used."""


class BrokerUnreachable(PeerError):
    """No broker answered; `bootstrap` is the address that was tried, `why` the client's words."""

    retryable: ClassVar[bool] = True

    def __init__(self, bootstrap: str, why: str = "") -> None:
        said = f" ({why})" if why else ""
        super().__init__(
            f"no Kafka broker answers at {bootstrap}{said}: is it running, and is the address "
            "(bootstrap.servers), security.protocol and firewall right?"
        )
        self.bootstrap = bootstrap


class JarsUnavailable(PeerError):
    """Java libraries cannot be downloaded; nothing half-filled is left behind."""

    retryable: ClassVar[bool] = True


class ReplayFailed(PeerError):
    """Kafka did not take dead letters back; they stay in their table."""


class RegistryUnavailable(PeerError):
    """The schema registry does not answer, or with something that is no answer."""

    retryable: ClassVar[bool] = True


class MembershipFailed(PeerError):
    """The group cannot be joined, or threw us out for good."""


class NotAllowed(MembershipFailed):
    """A right (ACL) is missing; says which, on what."""


class QueueMismatch(SettingError):
    """The topics of a queue do not fit each other, or are not there."""


class NotOffered(SettingError):
    """A queue of the kind that was opened cannot do what was asked of it."""


class BadDelay(CallerError):
    """A delay, or an extension, of a queue's message is no time; nothing was said of it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds!r} is no time to wait: give seconds, 0 or more, and finite")
        self.seconds = seconds


class NoShareGroups(SettingError):
    """The broker, or the client library, has no share groups (KIP-932)."""


class MarkersNotWritten(PeerError):
    """Kafka did not take a queue's start markers, so nothing was handed out; it is read again."""

    retryable: ClassVar[bool] = True


class TableCollision(SettingError):
    """Two topics would land in one table without having been told to."""


class TableMismatch(CallerError):
    """A table's columns do not fit the rows that are to land in it; no offset has moved."""


class TransformFailed(CallerError):
    """The user's transform, or a value on its way into a column, failed; no offset has moved."""


class OffsetsWentBack(CallerError):
    """A topic hands out offsets that its table already holds: it was deleted and created anew."""


class OffsetsExpired(CallerError):
    """Records were deleted before they were read, and `auto.offset.reset=error` says to stop."""


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
