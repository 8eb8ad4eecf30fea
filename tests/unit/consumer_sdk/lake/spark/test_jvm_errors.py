"""Exceptions of the JVM become Trimtab's errors by the names and messages of their causes."""

import ast
import re
import traceback
from pathlib import Path
from typing import Any, Final, TypeGuard

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import (
    CommitConflictError,
    LakeUnavailableError,
    SparkSessionError,
    StorageClientMissingError,
    TableAccessError,
    TableWriteError,
)
from trimtab.consumer_sdk.lake.spark.jvm_errors import MaskedError, to_trimtab_error, translate_errors
from trimtab.consumer_sdk.lake.writer.error_scope import concerns_all


class Throwable:
    """A Java throwable as py4j shows it."""

    def __init__(self, name: str, message: str, cause: "Throwable | None" = None) -> None:
        self.name, self.message, self.cause = name, message, cause

    def getClass(self) -> "Throwable":  # noqa: N802 - Java's names
        return self

    def getName(self) -> str:  # noqa: N802
        return self.name

    def getMessage(self) -> str:  # noqa: N802
        return self.message

    def getCause(self) -> "Throwable | None":  # noqa: N802
        return self.cause


def translate(name: str, message: str, cause: Throwable | None = None) -> TrimtabError:
    error: Any = PySparkException("")
    error._origin = Throwable(name, message, cause)
    return to_trimtab_error(error, "table lake.orders")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "java.lang.IllegalArgumentException",
            "Cannot initialize FileIO, missing no-arg constructor: org.apache.iceberg.aws.s3.S3FileIO",
        ),
        (
            "java.lang.NoSuchMethodException",
            "Cannot find constructor for interface org.apache.iceberg.io.FileIO\n\tMissing software",
        ),
        ("java.lang.NoClassDefFoundError", "software/amazon/awssdk/core/exception/SdkException"),
        ("java.lang.ClassNotFoundException", "com.google.cloud.storage.Storage"),
        ("java.lang.ClassNotFoundException", "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"),
        ("org.apache.hadoop.fs.UnsupportedFileSystemException", 'No FileSystem for scheme "s3"'),
    ],
)
def test_a_missing_client_is_no_outage(name: str, message: str) -> None:
    """The error names the setting; waiting for the storage would not help."""
    error = translate(name, message)
    assert isinstance(error, StorageClientMissingError)
    assert "table lake.orders: the Spark session has no client" in str(error)
    assert "set lake.storage to s3, gcs or azure" in str(error)


@pytest.mark.parametrize(
    ("name", "message", "advice"),
    [
        (
            "software.amazon.awssdk.core.exception.SdkClientException",
            "Unable to execute HTTP request",
            "do not respond",
        ),
        (
            "com.google.cloud.storage.StorageException",
            "writer@lake does not have storage.objects.create access to the bucket",
            "access denied",
        ),
        (
            "com.google.api.client.googleapis.json.GoogleJsonResponseException",
            "429 Too Many Requests rateLimitExceeded",
            "asks for fewer requests",
        ),
        (
            "com.azure.storage.blob.models.BlobStorageException",
            "Status code 404, The specified container does not exist.",
            "does not exist: create it",
        ),
        (
            "org.apache.hadoop.fs.azurebfs.contracts.exceptions.AbfsRestOperationException",
            "403, AuthorizationPermissionMismatch",
            "access denied",
        ),
    ],
)
def test_errors_of_a_client_are_outages(name: str, message: str, advice: str) -> None:
    """A client that is there and is refused, or gets no answer, tries again; the error says what to do."""
    error = translate(name, message)
    assert isinstance(error, LakeUnavailableError)
    assert advice in str(error)


@pytest.mark.parametrize(
    ("name", "cause", "kind"),
    [
        ("org.apache.iceberg.exceptions.ForbiddenException", "", TableAccessError),
        ("software.amazon.awssdk.services.glue.model.AccessDeniedException", "", TableAccessError),
        ("org.apache.iceberg.exceptions.NotAuthorizedException", "", LakeUnavailableError),
        (
            "org.apache.iceberg.exceptions.ForbiddenException",
            "software.amazon.awssdk.services.s3.model.S3Exception",
            LakeUnavailableError,
        ),
    ],
)
def test_a_table_that_its_catalog_refuses_concerns_it_alone(name: str, cause: str, kind: Any) -> None:
    """A login that is refused, or an object store's credentials, which expire, are an outage, retried."""
    error = translate(name, "denied", Throwable(cause, "Status Code: 403") if cause else None)
    assert isinstance(error, kind)
    assert error.retryable == (kind is LakeUnavailableError)
    assert not concerns_all(error)


IO_ERROR = "java.io.IOException"
LONG = "x" * 256


@pytest.mark.parametrize(
    ("name", "message", "advice"),
    [
        ("java.io.FileNotFoundException", "/lake/a=xx/0.parquet (File name too long)", "lake.partition"),
        (IO_ERROR, f"Mkdirs failed to create file:/lake/t/data/a={LONG} (exists=false, cwd=file:/)", ""),
        ("software.amazon.awssdk.services.s3.model.S3Exception", "Your key is too long (400)", ""),
        ("org.apache.hadoop.ipc.RemoteException", "The maximum path component name limit of x", ""),
        ("org.postgresql.util.PSQLException", "ERROR: value too long for type character varying(255)", ""),
        (
            "org.apache.iceberg.exceptions.NotFoundException",
            "Failed to open input stream for file: /lake/t/metadata/00001-7f.metadata.json",
            "restore the file",
        ),
        (
            "org.apache.iceberg.exceptions.NotFoundException",
            "Location does not exist: s3://lake/t/metadata/00001-7f.metadata.json",
            "drop the table",
        ),
        ("software.amazon.awssdk.services.glue.model.InvalidInputException", "Column x", "refuses its name"),
    ],
)
def test_what_one_table_asks_of_the_storage_in_vain_concerns_it_alone(
    name: str, message: str, advice: str
) -> None:
    """Taken for an outage, it would be retried for ever, and the other tables would wait."""
    error = translate("org.apache.spark.SparkException", "Job aborted", Throwable(name, message))
    assert isinstance(error, TableWriteError)
    assert advice in str(error)
    assert not concerns_all(error)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (IO_ERROR, "Mkdirs failed to create file:/lake/t/data (exists=false, cwd=file:/)"),
        # a reader that is behind, whose version was expired: it reads the next one
        ("org.apache.iceberg.exceptions.NotFoundException", "Failed to open input stream for file: /a.avro"),
    ],
)
def test_other_files_that_are_missing_or_cannot_be_made_are_outages(name: str, message: str) -> None:
    """A file system that is not mounted lacks them, too."""
    cause = Throwable("java.io.FileNotFoundException", "No such file")
    assert isinstance(translate(name, message, cause), LakeUnavailableError)


@pytest.mark.parametrize(
    "message",
    [
        "Cannot commit, missing data files: [file:/lake/t/data/a.parquet]",
        "Cannot commit, found new position delete for replaced data file: GenericDataFile{}",
        "Can't index multiple DVs for file:/lake/t/data/a.parquet: DV{} and DV{}",
        "Found concurrently added DV for file:/lake/t/data/a.parquet: DV{}",
        "Snapshot ancestry validation failed: the table's trimtab.offsets changed",
    ],
)
def test_upserts_and_compactions_that_meet_are_races(message: str) -> None:
    """Iceberg gives them the same class of exception as errors for good; they are tried again."""
    error = translate("org.apache.iceberg.exceptions.ValidationException", message)
    assert isinstance(error, CommitConflictError)


def test_a_missing_jdbc_driver_is_no_outage() -> None:
    """It is not there at the next try either; the settings are named, and the URL shows no password."""
    url = "jdbc:postgresql://db:5432/lake?user=lake&password=hunter2&ssl=true"
    error = translate("java.sql.SQLException", f"No suitable driver found for {url}")
    assert isinstance(error, StorageClientMissingError)
    assert "spark.jars or spark.jars.packages" in str(error)
    assert "hunter2" not in str(error)
    assert "jdbc:postgresql://db:5432/lake?user=lake&password=***&ssl=true" in str(error)


def test_a_password_at_the_end_of_a_message_is_masked_before_it_is_cut() -> None:
    """The rest of a secret whose end was cut off would not look like one."""
    error = translate("java.net.ConnectException", "x" * 370 + " https://lake:hunter2-and-more-of-it@catalog")
    assert "hunter2" not in str(error)


class JavaError(Py4JJavaError):
    """py4j's exception, whose text is Java's stack: all causes with their messages."""

    def __init__(self, stack: str, dies: bool = False) -> None:  # noqa: FBT001, FBT002
        self.java_exception = Throwable("java.sql.SQLException", "no answer")
        self.args = (stack,)
        self._stack, self._dies = stack, dies

    def __str__(self) -> str:
        if self._dies:
            raise Py4JNetworkError("the JVM is gone")
        return self._stack


STACK = """An error occurred while calling o1.load
java.lang.RuntimeException: failed
\tat org.postgresql.Driver.connect(Driver.java:1)
Caused by: java.sql.SQLException: jdbc:oracle:thin:lake/hunter2@//db:1521/lake, password="hunter2 x"
"""


def test_a_traceback_shows_no_secret_of_javas_causes() -> None:
    """An application that logs the error with its causes keeps Java's stack, without the passwords."""
    with pytest.raises(LakeUnavailableError) as caught, translate_errors("table lake.orders"):
        raise JavaError(STACK)
    shown = "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in shown
    assert "hunter2" not in repr(caught.value.__cause__)
    assert "JavaError: An error occurred while calling o1.load" in shown
    assert "at org.postgresql.Driver.connect(Driver.java:1)" in shown
    assert "jdbc:oracle:thin:lake/***@//db:1521/lake, password=***\n" in shown
    assert "in test_a_traceback_shows_no_secret_of_javas_causes" in shown


def test_a_traceback_is_printed_when_the_jvm_has_died() -> None:
    """py4j asks the JVM for the text of its exception only when that is shown."""
    assert str(MaskedError(JavaError("", dies=True))) == "JavaError"


PARSERS_OF_DDL: Final = ["arrow_files.py", "json_decoder.py"]


def test_every_error_of_the_jvm_is_a_masked_cause() -> None:
    """A new place that raises `from error` would show Java's text again; parsers of DDL see no secrets."""
    found, raised = 0, list[str]()
    for path in sorted((Path(__file__).parents[5] / "consumer_sdk").rglob("*.py")):
        for handler in filter(_handles_jvm_errors, ast.walk(ast.parse(path.read_text()))):
            found += 1
            causes = [node.cause for node in ast.walk(handler) if isinstance(node, ast.Raise)]
            names = [cause.id for cause in causes if isinstance(cause, ast.Name)]
            raised += [path.name] * (handler.name in names)
    assert found > 10
    assert sorted(raised) == PARSERS_OF_DDL


def _handles_jvm_errors(node: ast.AST) -> TypeGuard[ast.ExceptHandler]:
    if not isinstance(node, ast.ExceptHandler) or node.type is None:
        return False
    return re.search(r"JVM_ERRORS|Py4J|PySparkException", ast.unparse(node.type)) is not None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Py4JError("An error occurred while calling o9.foo. Trace:\npy4j.Py4JException: no method"), None),
        # py4j's error of a call whose connection broke
        (Py4JError("An error occurred while calling o9.foo"), SparkSessionError),
        (Py4JNetworkError("Answer from Java side is empty"), SparkSessionError),
        (ConnectionResetError("reset by peer"), SparkSessionError),
        (EOFError(), SparkSessionError),
    ],
)
def test_a_call_that_the_jvm_refuses_concerns_its_table(error: Exception, kind: Any) -> None:
    """It has answered, so it lives; without an answer it is gone, and all tables with it."""
    translated = to_trimtab_error(error, "table lake.orders")
    assert type(translated) is (kind or TableWriteError)
    assert concerns_all(translated) == (kind is not None)
    text = "py4j.Py4JException: no method" if kind is None else "the Spark JVM is gone"
    assert f"table lake.orders: {text}" in str(translated)
