"""Spark's JVM as seen from Python: what went wrong over there, as one of our errors.

An exception comes as py4j's or as one of pyspark's; both hide a Java throwable whose chain of
causes says what happened. `_ERROR_RULES` sorts such chains.
"""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import (
    CommitConflictError,
    DiskFullError,
    LakeUnavailableError,
    SparkSessionError,
    TableSchemaMismatchError,
    TransformError,
)

JVM_ERRORS: Final = (Py4JError, PySparkException, ConnectionError, EOFError)
"""What a call into the JVM may raise."""

_DISK_FULL: Final = re.compile(
    r"No space left on device|[Dd]isk quota exceeded|File too large|database or disk is full"
)
_COMMIT_RACED: Final = re.compile(
    r"\.CommitFailedException$|^io\.delta\.exceptions\.|\.DeltaConcurrentModificationException$"
)
_COMMIT_FENCED: Final = re.compile(
    r"Snapshot ancestry validation failed|Found (new )?conflicting|Missing required files to delete"
)
_CONSTRAINT_VIOLATED: Final = re.compile(
    r"NOT_NULL_ASSERT_VIOLATION|DELTA_NOT_NULL_CONSTRAINT_VIOLATED|DELTA_VIOLATE_CONSTRAINT"
)
_OUTCOME_UNKNOWN: Final = re.compile(r"\.CommitStateUnknownException$")
_TABLE_MISSING: Final = re.compile(r"\.NoSuch(Table|Namespace|IcebergTable)Exception$")
_STORAGE_UNAVAILABLE: Final = re.compile(
    r"""^java\.(io|nio|net|sql)\.\w*Exception$ | ^java\.nio\.file\.\w+
    | ^org\.sqlite\. | SQLException$ | Timeout(Exception)?$
    | ^org\.apache\.iceberg\.exceptions\.(RuntimeIO|ServiceUnavailable|ServiceFailure)Exception$
    | ^org\.apache\.iceberg\.exceptions\.(REST|NotAuthorized|Forbidden)Exception$
    | ^org\.apache\.thrift\. | ^org\.apache\.hadoop\.(net|fs|ipc|security)\.
    | ^software\.amazon\.awssdk\.
    """,
    re.VERBOSE,
)
_JVM_GONE: Final = (
    "the Spark JVM is gone (killed, or out of memory): start this process again; nothing is lost"
)

_RESTART_ADVICE: Final = "nothing was written and no offset moved: start this process again"

_ERROR_RULES: Final[tuple[tuple[Callable[[str, str], Any], type[TrimtabError], str], ...]] = (
    (
        lambda _, message: _DISK_FULL.search(message),
        DiskFullError,
        "the storage is full, make room",
    ),
    (
        lambda name, _: _OUTCOME_UNKNOWN.search(name),
        LakeUnavailableError,
        "the outcome is not known",
    ),
    (lambda name, _: _COMMIT_RACED.search(name), CommitConflictError, "another writer was faster"),
    (
        lambda _, message: _COMMIT_FENCED.search(message),
        CommitConflictError,
        "another writer was faster",
    ),
    (
        lambda _, message: _CONSTRAINT_VIOLATED.search(message),
        TableSchemaMismatchError,
        "a row lacks a value that the table requires, or has one that it does not take",
    ),
    (
        lambda name, _: _TABLE_MISSING.search(name),
        TableSchemaMismatchError,
        f"the table was dropped; {_RESTART_ADVICE}",
    ),
    (
        lambda name, _: _STORAGE_UNAVAILABLE.search(name),
        LakeUnavailableError,
        "catalog or storage do not answer",
    ),
)
"""How a chain of causes is sorted: the first line that fits any of them decides."""


def java_causes(error: BaseException) -> list[tuple[str, str]]:
    """Return (class name, message) of the Java throwable and its causes, outermost first."""
    try:
        return list(_walk_causes(_java_throwable(error)))
    except (Py4JNetworkError, ConnectionError, EOFError):
        return []


def is_table_missing(error: BaseException) -> bool:
    """Whether the error says that a table or its namespace does not exist."""
    return any(_TABLE_MISSING.search(name) for name, _ in java_causes(error))


def to_trimtab_error(error: BaseException, where: str) -> TrimtabError:
    """Return our error for one that came out of the JVM; `where` begins its message."""
    chain = java_causes(error)
    told = _innermost_message(chain, error)
    if not chain and not isinstance(error, PySparkException):  # it did not come from Java
        return SparkSessionError(f"{where}: {_JVM_GONE} ({told})")
    for fits, kind, what in _ERROR_RULES:
        if any(fits(name, message) for name, message in chain):
            return kind(f"{where}: {what}: {told}")
    if isinstance(error, AnalysisException):
        return TableSchemaMismatchError(f"{where}: the rows do not fit: {told}")
    return TransformError(f"{where}: {told}")


@contextmanager
def translate_errors(where: str) -> Generator[None, None, None]:
    """Turn what the block raises out of the JVM into our error (see `to_trimtab_error`)."""
    try:
        yield
    except JVM_ERRORS as error:
        raise to_trimtab_error(error, where) from error


def _java_throwable(error: BaseException) -> Any:
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)


def _walk_causes(throwable: Any) -> Iterator[tuple[str, str]]:
    for _ in range(20):
        if throwable is None:
            return
        yield str(throwable.getClass().getName()), str(throwable.getMessage() or "")
        throwable = throwable.getCause()


def _innermost_message(chain: list[tuple[str, str]], error: BaseException) -> str:
    """Return the most telling line: of the innermost cause that has a message."""
    messages = [message for _, message in chain if message] or [str(error)]
    line = next(iter(messages[-1].strip().splitlines()), "")
    return line[:400]
