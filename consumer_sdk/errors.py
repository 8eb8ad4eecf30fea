"""Errors of the consumer SDK, on the two branches of `trimtab.common.errors`.

CallerError
├── SettingError
│   ├── InvalidSettingError             librdkafka refuses the configuration (exit code 2)
│   ├── QueueTopicMismatchError         the topics of a queue do not fit each other (exit code 2)
│   ├── UnsupportedQueueOperationError  this kind of queue lacks the operation (exit code 2)
│   └── TableNameCollisionError         two topics would land in one table
├── InvalidDelayError                   a delay, or an extension, of a queue's message is no time
├── JavaNotFoundError                   no Java is found
├── UnsupportedJavaError                the Java that is found is too old or too new
├── MissingExtraError                   an optional package is not installed
├── ConsumerClosedError                 a closed consumer was used
├── TableSchemaMismatchError            a table's columns do not fit the rows that are to land in it
├── TransformError                      the user's transform failed, or a value did not fit
├── OffsetRegressionError               a topic hands out offsets that its table already holds
└── OffsetsExpiredError                 records were deleted unread, and auto.offset.reset=error
PeerError
├── BrokerUnreachableError              no broker answered (retryable)
├── JarsUnavailableError                Java libraries cannot be downloaded (retryable)
├── DeadLetterReplayError               Kafka refused dead letters; they stay in their table
├── SchemaRegistryUnavailableError      the schema registry does not answer (retryable)
├── GroupMembershipError                the group cannot be joined, or threw us out for good
│   └── MissingAclError                 a right (ACL) is missing; says which, on what
├── MarkerWriteError                    Kafka did not take a queue's start markers (retryable)
└── LakeError                           what the lake's side does wrong; never raised itself
    ├── SparkSessionError               Spark did not start, or its JVM is gone
    ├── CommittedOffsetsLostError       a table's history no longer says which offsets it holds
    ├── LakeUnavailableError            catalog or storage do not answer, or are locked (retryable)
    │   └── DiskFullError               no room for the data files (retryable)
    └── CommitConflictError             another writer changed the table first (retryable)
"""

from pathlib import Path
from typing import ClassVar, Final

from trimtab.common.errors import CallerError, PeerError, SettingError

JAVA_ADVICE: Final = (
    "Trimtab needs Java 17 to 24 (Spark 4.1 does not start with 25): install one, for example "
    "openjdk-17-jre-headless, or let JAVA_HOME point to it"
)


class InvalidSettingError(SettingError):
    """librdkafka refuses the configuration."""


class JavaNotFoundError(CallerError):
    """No Java is found; `searched` says where."""

    def __init__(self, searched: str) -> None:
        super().__init__(f"{searched}; {JAVA_ADVICE}")
        self.searched = searched


class UnsupportedJavaError(CallerError):
    """The Java at `path` is of a version that Spark and Kafka do not both run on."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(f"{path} is Java {version}; {JAVA_ADVICE}")
        self.path = path
        self.version = version


class MissingExtraError(CallerError):
    """An optional package is not installed; says which pip command installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed and this needs it: pip install 'trimtab[{extra}]'"
        )
        self.package = package
        self.extra = extra


class ConsumerClosedError(CallerError):
    """A closed consumer was used."""


class BrokerUnreachableError(PeerError):
    """No broker answered; `bootstrap` is the address that was tried, `reason` the client's words."""

    retryable: ClassVar[bool] = True

    def __init__(self, bootstrap: str, reason: str = "") -> None:
        said = f" ({reason})" if reason else ""
        super().__init__(
            f"no Kafka broker answers at {bootstrap}{said}: is it running, and is the address "
            "(bootstrap.servers), security.protocol and firewall right?"
        )
        self.bootstrap = bootstrap


class JarsUnavailableError(PeerError):
    """Java libraries cannot be downloaded; nothing half-filled is left behind."""

    retryable: ClassVar[bool] = True


class DeadLetterReplayError(PeerError):
    """Kafka refused dead letters; they stay in their table."""


class SchemaRegistryUnavailableError(PeerError):
    """The schema registry does not answer, or with something that is no answer."""

    retryable: ClassVar[bool] = True


class GroupMembershipError(PeerError):
    """The group cannot be joined, or threw us out for good."""


class MissingAclError(GroupMembershipError):
    """A right (ACL) is missing; says which, on what."""


class QueueTopicMismatchError(SettingError):
    """The topics of a queue do not fit each other, or are not there."""


class UnsupportedQueueOperationError(SettingError):
    """A queue of the kind that was opened cannot do what was asked of it."""


class InvalidDelayError(CallerError):
    """A delay, or an extension, of a queue's message is no time; nothing was said of it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds!r} is no time to wait: give seconds, 0 or more, and finite")
        self.seconds = seconds


class MarkerWriteError(PeerError):
    """Kafka did not take a queue's start markers, so nothing was handed out; it is read again."""

    retryable: ClassVar[bool] = True


class TableNameCollisionError(SettingError):
    """Two topics would land in one table without having been told to."""


class TableSchemaMismatchError(CallerError):
    """A table's columns do not fit the rows that are to land in it; no offset has moved."""


class TransformError(CallerError):
    """The user's transform, or a value on its way into a column, failed; no offset has moved."""


class OffsetRegressionError(CallerError):
    """A topic hands out offsets that its table already holds: it was deleted and created anew."""


class OffsetsExpiredError(CallerError):
    """Records were deleted before they were read, and `auto.offset.reset=error` says to stop."""


class LakeError(PeerError):
    """Base of what the lake's side does wrong; never raised itself."""


class SparkSessionError(LakeError):
    """Spark did not start, or its JVM is gone."""


class CommittedOffsetsLostError(LakeError):
    """A table has rows but its history no longer says up to which offsets; or says it illegibly."""


class LakeUnavailableError(LakeError):
    """The catalog or the storage does not answer, or is locked."""

    retryable: ClassVar[bool] = True


class DiskFullError(LakeUnavailableError):
    """The storage has no room for the data files."""


class CommitConflictError(LakeError):
    """Another writer changed the table between reading its marks and committing."""

    retryable: ClassVar[bool] = True
