"""Which errors concern all tables, and which halt one of them.

All tables are concerned, so that the process ends or, where it may wait, tries again, by:

1. what all of them need and nobody reaches: broker, catalog, object store, schema registry, Spark's JVM;
2. storage that is full, or that cannot hold tables of any writer;
3. a membership that is lost for good;
4. settings, which are checked before the group is joined; interrupts, and memory that is used up.

Everything else concerns one topic, table or partition, whatever the error is: its rows, schema, partition
rule, name, transform, its subject in the registry, a table that the catalog refuses, that was dropped or
altered, and errors that nobody expected. It halts that one (`halted_partitions`) and touches no other. A
setting that only the rows of one table show to be wrong, such as a partition rule without its column, is
that table's.
"""

from confluent_kafka import KafkaException

from trimtab.common.errors import TrimtabError
from trimtab.common.kafka_security.secrets import mask_passwords
from trimtab.consumer_sdk.errors import (
    ConsumerClosedError,
    GroupMembershipError,
    LakeUnavailableError,
    MissingExtraError,
    SparkSessionError,
    TableWriteError,
    UnusableStorageError,
)
from trimtab.consumer_sdk.lake.spark.jvm_errors import MaskedError

_CONCERN_ALL = (
    KafkaException,
    ConsumerClosedError,
    GroupMembershipError,
    LakeUnavailableError,
    MissingExtraError,
    SparkSessionError,
    UnusableStorageError,
    MemoryError,
)


def concerns_all(error: BaseException) -> bool:
    """Return whether an error concerns all tables."""
    is_outage = isinstance(error, TrimtabError) and error.retryable
    return is_outage or isinstance(error, _CONCERN_ALL) or not isinstance(error, Exception)


def to_table_error(table: str, error: BaseException) -> TrimtabError:
    """Return an error that concerns a table as an error of ours."""
    if isinstance(error, TrimtabError):
        return error
    line = next(iter(str(error).splitlines()), "")
    named = TableWriteError(f"table {table}: unexpected {type(error).__name__}: {mask_passwords(line)[:400]}")
    named.__cause__ = MaskedError(error)
    return named
