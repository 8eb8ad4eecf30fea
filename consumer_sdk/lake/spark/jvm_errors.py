"""Translates exceptions of Spark's JVM into Trimtab's errors, by their chain of causes.

An error of ours is raised `from MaskedError(error)`, so that no log shows the secrets in Java's messages.
"""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

from trimtab.common.errors import TrimtabError
from trimtab.common.kafka_security.secrets import mask_passwords
from trimtab.consumer_sdk.errors import (
    DROPPED_ADVICE,
    CommitConflictError,
    DiskFullError,
    LakeUnavailableError,
    SparkSessionError,
    StorageClientMissingError,
    TableAccessError,
    TableSchemaMismatchError,
    TableWriteError,
    TransformError,
)
from trimtab.consumer_sdk.lake.spark.storage_advice import find_advice

JVM_ERRORS: Final = (Py4JError, PySparkException, ConnectionError, EOFError)  # of calls into the JVM
MAX_CAUSES: Final = 20  # a chain may be circular
_DISK_FULL: Final = re.compile(
    r"No space left on device|[Dd]isk quota exceeded|File too large|database or disk is full"
)
_COMMIT_RACED: Final = re.compile(
    r"\.CommitFailedException$|^io\.delta\.exceptions\.|\.DeltaConcurrentModificationException$"
)
# Iceberg's validations raise a plain ValidationException: only its text tells a lost race
_COMMIT_FENCED: Final = re.compile(
    r"Snapshot ancestry validation failed|Found (new )?conflicting|Missing required files to delete"
    # of upserts, and of the compactions beside them, which look at all vectors added since they began
    r"|Found concurrently added DV|Cannot commit, (missing data files|found new (position )?delete)"
    r"|Can't index multiple DVs"
)
_CONSTRAINT: Final = re.compile(
    r"NOT_NULL_ASSERT_VIOLATION|DELTA_NOT_NULL_CONSTRAINT_VIOLATED|DELTA_VIOLATE_CONSTRAINT"
    r"|is no partition value of"
)
_CLOCKS_APART: Final = re.compile(
    r"Expected sorted (snapshot|previous metadata) log entries|Invalid update timestamp"
)
_CLOCK_ADVICE: Final = (
    "Iceberg refuses the change for its date, since the clocks of the table's writers, or of its catalog, "
    "are more than a minute apart: synchronize the clocks (NTP)"
)
# of a file system, S3, HDFS, a catalog's database; Hadoop says of a local folder only that it is not made
_NAME_TOO_LONG: Final = re.compile(
    r"File name too long|[Kk]ey is too long|maximum path component name limit|value too long for type"
    r"|Mkdirs failed to create \S*[^/\s]{256}"
)
_NAME_ADVICE: Final = (
    "a name or a partition value is too long for the storage or the catalog: another lake.partition or "
    "lake.tables has shorter ones"
)
_METADATA_GONE: Final = re.compile(
    r"(Failed to open input stream for file|Location does not exist|File does not exist): \S+\.metadata\.json"
)
_METADATA_ADVICE: Final = "its metadata file is gone: restore the file, or drop the table from the catalog"
_INVALID_IN_GLUE: Final = re.compile(r"\.glue\.model\.InvalidInputException$")
_OUTCOME_UNKNOWN: Final = re.compile(r"\.CommitStateUnknownException$")
_TABLE_MISSING: Final = re.compile(r"\.NoSuch(Table|Namespace|IcebergTable)Exception$")
_LOG_MISSING: Final = re.compile(r"_delta_log does not exist")
_STORAGE_UNAVAILABLE: Final = re.compile(
    r"""^java\.(io|nio|net|sql)\.\w*Exception$ | ^java\.nio\.file\.\w+
    | ^org\.sqlite\. | SQLException$ | Timeout(Exception)?$
    | ^org\.apache\.iceberg\.exceptions\.(RuntimeIO|ServiceUnavailable|ServiceFailure)Exception$
    | ^org\.apache\.iceberg\.exceptions\.(REST|NotAuthorized)Exception$
    | ^org\.apache\.thrift\. | ^org\.apache\.hadoop\.(net|fs|ipc|security)\.
    | ^software\.amazon\.awssdk\.(?!services\.glue\.model\.AccessDenied)
    | ^com\.google\.(cloud|api)\. | ^com\.azure\.
    """,
    re.VERBOSE,
)
# behind the storage's errors: Iceberg's clients of object stores raise it, too
_TABLE_REFUSED: Final = re.compile(
    r"^org\.apache\.iceberg\.exceptions\.ForbiddenException$|\.glue\.model\.AccessDenied\w*$"
)
_CLIENT_MISSING: Final = re.compile(
    r"""Cannot\ (find\ constructor\ for|initialize)\ .*FileIO | No\ FileSystem\ for\ scheme
    | ^(Class\ )? (software[./]amazon | com[./]google[./]cloud | com[./]azure
    | org[./]apache[./]hadoop[./]fs[./](s3a|azurebfs))[./]\S+ (\ not\ found)?$
    """,
    re.VERBOSE,
)
_CLIENT_ADVICE: Final = (
    "the Spark session has no client for the table's storage: set lake.storage to s3, gcs or azure, "
    "which downloads one"
)
_NO_JDBC_DRIVER: Final = re.compile("^No suitable driver")
_DRIVER_ADVICE: Final = (
    "the Spark session has no JDBC driver for the catalog's database: add the driver by spark.jars or "
    "spark.jars.packages, or correct lake.catalog.uri"
)
_JVM_GONE: Final = "the Spark JVM is gone (killed, or out of memory): restart this process; nothing is lost"

_CALL_REFUSED: Final = " Trace:\n"  # in the text of a plain Py4JError: what the JVM answered

_NAME, _MESSAGE = 0, 1  # places in a cause
# place, pattern, error, text; the first rule that matches any cause wins
_ERROR_RULES: Final[tuple[tuple[int, re.Pattern[str], type[TrimtabError], str], ...]] = (
    # before the storage's errors: a full disk is an IOException, too
    (_MESSAGE, _DISK_FULL, DiskFullError, "the storage is full, make room"),
    (_MESSAGE, _CLIENT_MISSING, StorageClientMissingError, _CLIENT_ADVICE),
    # before the storage's errors: it is an SQLException, as those of a database that does not respond
    (_MESSAGE, _NO_JDBC_DRIVER, StorageClientMissingError, _DRIVER_ADVICE),
    # before the storage's errors, too: the storage answers, and the other tables are written
    (_MESSAGE, _NAME_TOO_LONG, TableWriteError, _NAME_ADVICE),
    (_MESSAGE, _METADATA_GONE, TableWriteError, _METADATA_ADVICE),
    (_NAME, _INVALID_IN_GLUE, TableWriteError, "the catalog refuses its name or its columns"),
    (_NAME, _OUTCOME_UNKNOWN, LakeUnavailableError, "the outcome is unknown"),
    (_NAME, _COMMIT_RACED, CommitConflictError, "another writer was faster"),
    (_MESSAGE, _COMMIT_FENCED, CommitConflictError, "another writer was faster"),
    (
        _MESSAGE,
        _CONSTRAINT,
        TableSchemaMismatchError,
        "a row lacks a required value or violates a constraint",
    ),
    (_MESSAGE, _CLOCKS_APART, LakeUnavailableError, _CLOCK_ADVICE),
    (_NAME, _TABLE_MISSING, TableSchemaMismatchError, DROPPED_ADVICE),
    (_MESSAGE, _LOG_MISSING, TableSchemaMismatchError, DROPPED_ADVICE),
    (_NAME, _STORAGE_UNAVAILABLE, LakeUnavailableError, ""),  # its cause says what to do
    (_NAME, _TABLE_REFUSED, TableAccessError, "the catalog refuses it: grant this writer the table"),
)


class MaskedError(Exception):
    """The cause of an error of ours: an exception of the JVM whose text has no secrets.

    A traceback shows the causes of an error, and py4j's text is Java's stack with the messages of all
    causes, so with the URLs of drivers.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__()  # not among its args, which a log may show
        self._error = error
        self.with_traceback(error.__traceback__)

    def __str__(self) -> str:
        name = type(self._error).__name__
        try:
            return f"{name}: {mask_passwords(str(self._error))}"
        except (Py4JError, OSError, EOFError):  # py4j asks the JVM for the text, and it died meanwhile
            return name


def java_causes(error: BaseException) -> list[tuple[str, str]]:
    """Return (class name, message) of the Java throwable and its causes, outermost first."""
    # pyspark converts some Java exceptions, and keeps them as `_origin`
    name = "java_exception" if isinstance(error, Py4JJavaError) else "_origin"
    try:
        return list(_walk_causes(getattr(error, name, None)))
    except (Py4JNetworkError, ConnectionError, EOFError):  # the JVM died meanwhile
        return []


def is_table_missing(error: BaseException) -> bool:
    """Return whether the error means that a table or its namespace does not exist."""
    return any(_TABLE_MISSING.search(name) for name, _ in java_causes(error))


def are_clocks_apart(error: BaseException) -> bool:
    """Return whether Iceberg refused a commit for its date."""
    return any(_CLOCKS_APART.search(message) for _, message in java_causes(error))


def to_trimtab_error(error: BaseException, where: str) -> TrimtabError:
    """Return our error for an exception of the JVM; `where` starts its message."""
    chain = java_causes(error)
    detail = _innermost_message(chain, error)
    # without a Java throwable, the connection to the JVM failed, unless py4j refused the call there
    if not chain and _CALL_REFUSED in str(error):
        answer = _innermost_message([("", str(error).partition(_CALL_REFUSED)[2])], error)
        return TableWriteError(f"{where}: {answer}")
    if not chain and not isinstance(error, PySparkException):
        return SparkSessionError(f"{where}: {_JVM_GONE} ({detail})")
    for place, pattern, kind, text in _ERROR_RULES:
        if any(pattern.search(cause[place]) for cause in chain):
            return kind(f"{where}: {text or find_advice(chain)}: {detail}")
    if isinstance(error, AnalysisException):
        return TableSchemaMismatchError(f"{where}: the rows do not fit: {detail}")
    return TransformError(f"{where}: {detail}")


@contextmanager
def translate_errors(
    where: str, explain: Callable[[TrimtabError], TrimtabError] | None = None
) -> Generator[None, None, None]:
    """Translate the JVM's exceptions of a block (`to_trimtab_error`); `explain` may add advice."""
    try:
        yield
    except JVM_ERRORS as error:
        translated = to_trimtab_error(error, where)
        raise (explain(translated) if explain else translated) from MaskedError(error)


def _walk_causes(throwable: Any) -> Iterator[tuple[str, str]]:
    for _ in range(MAX_CAUSES):
        if throwable is None:
            return
        yield str(throwable.getClass().getName()), str(throwable.getMessage() or "")
        throwable = throwable.getCause()


def _innermost_message(chain: list[tuple[str, str]], error: BaseException) -> str:
    # the innermost cause is the most specific; the rest of its lines is the stack or a query plan
    messages = [message for _, message in chain if message] or [str(error)]
    line = next(iter(messages[-1].strip().splitlines()), "")
    # drivers show their whole URL; masked first, since a secret whose end is cut off is not recognized
    return mask_passwords(line)[:400]
