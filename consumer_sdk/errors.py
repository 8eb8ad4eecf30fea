"""Errors of the consumer SDK, on the two branches of `trimtab.common.errors`.

CallerError
├── SettingError
│   ├── InvalidSettingError             librdkafka rejects the configuration (exit code 2)
│   ├── QueueTopicMismatchError         a queue's topics are missing or do not match (exit code 2)
│   ├── UnsupportedQueueOperationError  this kind of queue lacks the operation (exit code 2)
│   ├── UnsupportedByProtocolError      the new group protocol lacks the operation (exit code 2)
│   ├── UnusableStorageError            the storage suits no table (exit code 2)
│   ├── StorageClientMissingError       Spark has no client for the tables' storage or catalog (exit code 2)
│   └── TableNameCollisionError         two topics map to one table
├── InvalidDelayError                   a delay or extension is negative or not finite
├── JavaNotFoundError                   no Java was found
├── UnsupportedJavaError                the Java version is not supported
├── MissingExtraError                   an optional package is not installed
├── ConsumerClosedError                 the consumer was used after close()
├── TableSchemaMismatchError            a table's columns do not match the rows to write
├── TransformError                      the user's transform, or a value's conversion, failed
├── OffsetRegressionError               a topic has offsets again that its table already contains
└── OffsetsExpiredError                 records were deleted unread and auto.offset.reset=error
PeerError
├── BrokerUnreachableError              no broker answered (retryable)
├── JarsUnavailableError                Java libraries cannot be downloaded (retryable)
├── DeadLetterReplayError               Kafka rejected dead letters; they stay in their table
├── SchemaRegistryUnavailableError      the schema registry does not answer (retryable)
├── GroupMembershipError                the group cannot be joined, or removed the member for good
│   └── MissingAclError                 a permission (ACL) is missing
├── MarkerWriteError                    Kafka did not accept a queue's start markers (retryable)
└── LakeError                           base of the lake's errors; never raised itself
    ├── SparkSessionError               Spark did not start, or its JVM ended
    ├── TableWriteError                 one table cannot be written, for any other error
    ├── TableAccessError                catalog or registry refuse one table, or its schema
    ├── CommittedOffsetsLostError       a table's history no longer has its committed offsets
    ├── LakeUnavailableError            catalog or storage is unreachable or locked (retryable)
    │   └── DiskFullError               no space for the data files (retryable)
    └── CommitConflictError             another writer changed the table first (retryable)
"""

from pathlib import Path
from typing import ClassVar, Final

from trimtab.common.errors import CallerError, PeerError, SettingError

JAVA_ADVICE: Final = (
    "Trimtab needs Java 17 to 24 (Spark 4.1 does not start with 25): install one, for example "
    "openjdk-17-jre-headless, or set JAVA_HOME to it"
)


class InvalidSettingError(SettingError):
    """librdkafka rejects the configuration."""


class JavaNotFoundError(CallerError):
    """No Java was found; `searched` describes where."""

    def __init__(self, searched: str) -> None:
        super().__init__(f"{searched}; {JAVA_ADVICE}")


class UnsupportedJavaError(CallerError):
    """The Java at `path` has a version that Spark or Kafka does not support."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(f"{path} is Java {version}; {JAVA_ADVICE}")
        self.path = path
        self.version = version


class MissingExtraError(CallerError):
    """An optional package is not installed; the text has the pip command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed and this needs it: pip install 'trimtab[{extra}]'")


class ConsumerClosedError(CallerError, RuntimeError):
    """The consumer was used after close(); a RuntimeError, as confluent-kafka raises."""


class BrokerUnreachableError(PeerError):
    """No broker answered at `bootstrap`; `reason` is the client's error text."""

    retryable: ClassVar[bool] = True

    def __init__(self, bootstrap: str, reason: str = "") -> None:
        details = f" ({reason})" if reason else ""
        super().__init__(
            f"no Kafka broker answers at {bootstrap}{details}: is it running, and is the address "
            "(bootstrap.servers), security.protocol and firewall right?"
        )


class JarsUnavailableError(PeerError):
    """Java libraries cannot be downloaded; no incomplete folder is left behind."""

    retryable: ClassVar[bool] = True


class DeadLetterReplayError(PeerError):
    """Kafka rejected dead letters; they stay in their table."""


class SchemaRegistryUnavailableError(PeerError):
    """The schema registry does not answer, or its answer cannot be decoded."""

    retryable: ClassVar[bool] = True


class GroupMembershipError(PeerError):
    """The group cannot be joined, or removed this member for good."""


class MissingAclError(GroupMembershipError):
    """A permission (ACL) is missing; the text names it and its resource."""


class QueueTopicMismatchError(SettingError):
    """The topics of a queue are missing, or do not match each other."""


class UnsupportedQueueOperationError(SettingError):
    """The kind of queue that was opened does not support the operation."""


class UnsupportedByProtocolError(SettingError):
    """The new group protocol (`group.protocol=consumer`) lacks the operation."""


class InvalidDelayError(CallerError):
    """A delay or extension is negative or not finite; the message stays unsettled."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds!r} is no time to wait: give seconds, 0 or more, and finite")


class MarkerWriteError(PeerError):
    """Kafka did not accept a queue's start markers; the messages are not delivered, but re-read."""

    retryable: ClassVar[bool] = True


class UnusableStorageError(SettingError):
    """The storage of the tables suits no table."""


class StorageClientMissingError(SettingError):
    """The Spark session has no client for the tables' object storage, or no driver for their catalog."""


class TableNameCollisionError(SettingError):
    """Two topics map to one table, although the configuration does not say so."""


DROPPED_ADVICE: Final = "the table was dropped: restore it, or create it again (docs/lake.md)"


class TableSchemaMismatchError(CallerError):
    """A table's columns do not match the rows to write; no offset was committed."""


class TransformError(CallerError):
    """The user's transform, or a value's conversion, failed; no offset was committed."""


class OffsetRegressionError(CallerError):
    """A topic was deleted and created again: its offsets are already in the table."""


class OffsetsExpiredError(CallerError):
    """Records were deleted before they were read, and `auto.offset.reset` is `error`."""


class LakeError(PeerError):
    """Base of the lake's errors; never raised itself."""


class SparkSessionError(LakeError):
    """Spark did not start, or its JVM ended."""


class TableWriteError(LakeError):
    """One table cannot be written, for an error without a class of its own; its cause has it."""


class TableAccessError(LakeError):
    """The catalog refuses one table to this writer, or the schema registry a schema of its records."""


class CommittedOffsetsLostError(LakeError):
    """A table has rows, but no readable committed offsets in its history."""


class LakeUnavailableError(LakeError):
    """The catalog or the storage is unreachable or locked."""

    retryable: ClassVar[bool] = True


class DiskFullError(LakeUnavailableError):
    """The storage has no space for the data files."""


class CommitConflictError(LakeError):
    """Another writer changed the table between reading its offsets and committing."""

    retryable: ClassVar[bool] = True
