"""Which errors concern all tables, and which halt one of them.

All tables are concerned, so that the process ends or, where it may wait, tries again, by:

1. a broker that nobody reaches, and Spark's JVM;
2. storage that cannot hold tables of any writer. A client that Spark lacks is no such error, nor is a folder
   that only Spark's executors see: the warehouse's and the catalog's clients are checked when the lake is
   opened (`session`), and another engine may have created one table on another storage;
3. a membership that is lost for good;
4. settings, which are checked before the group is joined; interrupts, and memory that is used up.

An *outage* (catalog, object store or schema registry that do not answer, storage that is full) concerns each
table that meets it: whether others meet it, too, is not asked. A flush retries it for `lake.flush.timeout`,
so that a short one halts nothing; then its table is halted and gives up its thread and its memory. So is, in
an assignment, a table whose offsets are not read by then, whether calls fail or do not return. If
everything is unreachable, every table is halted so, the process goes on, and each table is tried again by
itself, at least every 30 s (`halted_partitions`). Only a process that has never reached a table, and whose
lake does not list its tables either, ends in its assignment: its settings may be wrong.

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
    MissingExtraError,
    SparkSessionError,
    UnusableStorageError,
    MemoryError,
)


def concerns_all(error: BaseException) -> bool:
    """Return whether an error concerns all tables."""
    return isinstance(error, _CONCERN_ALL) or not isinstance(error, Exception)


def to_table_error(table: str, error: BaseException) -> TrimtabError:
    """Return an error that concerns a table as an error of ours."""
    if isinstance(error, TrimtabError):
        return error
    line = next(iter(str(error).splitlines()), "")
    named = TableWriteError(f"table {table}: unexpected {type(error).__name__}: {mask_passwords(line)[:400]}")
    named.__cause__ = MaskedError(error)
    return named
