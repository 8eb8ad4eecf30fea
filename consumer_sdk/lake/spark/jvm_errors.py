"""Spark's JVM as seen from Python: what went wrong over there, as one of our errors.

An exception comes as py4j's or as one of pyspark's; both hide a Java throwable whose chain of
causes says what happened. `_KINDS` sorts such chains.
"""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import (
    CommitRaced,
    DiskFull,
    LakeUnavailable,
    SessionFailed,
    TableMismatch,
    TransformFailed,
)

JvmError: Final = (Py4JError, PySparkException, ConnectionError, EOFError)
"""What a call into the JVM may raise."""

_NO_ROOM: Final = re.compile(
    r"No space left on device|[Dd]isk quota exceeded|File too large|database or disk is full"
)
_RACED: Final = re.compile(
    r"\.CommitFailedException$|^io\.delta\.exceptions\.|\.DeltaConcurrentModificationException$"
)
_FENCED: Final = re.compile(
    r"Snapshot ancestry validation failed|Found (new )?conflicting|Missing required files to delete"
)
_REFUSED: Final = re.compile(
    r"NOT_NULL_ASSERT_VIOLATION|DELTA_NOT_NULL_CONSTRAINT_VIOLATED|DELTA_VIOLATE_CONSTRAINT"
)
_UNKNOWN: Final = re.compile(r"\.CommitStateUnknownException$")
_MISSING: Final = re.compile(r"\.NoSuch(Table|Namespace|IcebergTable)Exception$")
_AWAY: Final = re.compile(
    r"""^java\.(io|nio|net|sql)\.\w*Exception$ | ^java\.nio\.file\.\w+
    | ^org\.sqlite\. | SQLException$ | Timeout(Exception)?$
    | ^org\.apache\.iceberg\.exceptions\.(RuntimeIO|ServiceUnavailable|ServiceFailure)Exception$
    | ^org\.apache\.iceberg\.exceptions\.(REST|NotAuthorized|Forbidden)Exception$
    | ^org\.apache\.thrift\. | ^org\.apache\.hadoop\.(net|fs|ipc|security)\.
    | ^software\.amazon\.awssdk\.
    """,
    re.VERBOSE,
)
_GONE: Final = (
    "the Spark JVM is gone (killed, or out of memory): start this process again; nothing is lost"
)

_AGAIN: Final = "nothing was written and no offset moved: start this process again"

_KINDS: Final[tuple[tuple[Callable[[str, str], Any], type[TrimtabError], str], ...]] = (
    (lambda _, message: _NO_ROOM.search(message), DiskFull, "the storage is full, make room"),
    (lambda name, _: _UNKNOWN.search(name), LakeUnavailable, "the outcome is not known"),
    (lambda name, _: _RACED.search(name), CommitRaced, "another writer was faster"),
    (lambda _, message: _FENCED.search(message), CommitRaced, "another writer was faster"),
    (
        lambda _, message: _REFUSED.search(message),
        TableMismatch,
        "a row lacks a value that the table requires, or has one that it does not take",
    ),
    (lambda name, _: _MISSING.search(name), TableMismatch, f"the table was dropped; {_AGAIN}"),
    (lambda name, _: _AWAY.search(name), LakeUnavailable, "catalog or storage do not answer"),
)
"""How a chain of causes is sorted: the first line that fits any of them decides."""


def causes(error: BaseException) -> list[tuple[str, str]]:
    """Return (class name, message) of the Java throwable and its causes, outermost first."""
    try:
        return list(_chain(_throwable(error)))
    except (Py4JNetworkError, ConnectionError, EOFError):
        return []


def is_missing(error: BaseException) -> bool:
    """Whether the error says that a table or its namespace does not exist."""
    return any(_MISSING.search(name) for name, _ in causes(error))


def translate(error: BaseException, where: str) -> TrimtabError:
    """Return our error for one that came out of the JVM; `where` begins its message."""
    chain = causes(error)
    told = _first_line(chain, error)
    if not chain and not isinstance(error, PySparkException):  # it did not come from Java
        return SessionFailed(f"{where}: {_GONE} ({told})")
    for fits, kind, what in _KINDS:
        if any(fits(name, message) for name, message in chain):
            return kind(f"{where}: {what}: {told}")
    if isinstance(error, AnalysisException):
        return TableMismatch(f"{where}: the rows do not fit: {told}")
    return TransformFailed(f"{where}: {told}")


@contextmanager
def translated(where: str) -> Generator[None, None, None]:
    """Turn what the block raises out of the JVM into our error (see `translate`)."""
    try:
        yield
    except JvmError as error:
        raise translate(error, where) from error


def _throwable(error: BaseException) -> Any:
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)


def _chain(throwable: Any) -> Iterator[tuple[str, str]]:
    for _ in range(20):
        if throwable is None:
            return
        yield str(throwable.getClass().getName()), str(throwable.getMessage() or "")
        throwable = throwable.getCause()


def _first_line(chain: list[tuple[str, str]], error: BaseException) -> str:
    """Return the most telling line: of the innermost cause that has a message."""
    messages = [message for _, message in chain if message] or [str(error)]
    line = next(iter(messages[-1].strip().splitlines()), "")
    return line[:400]
