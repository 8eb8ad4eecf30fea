"""Exceptions of the JVM become Trimtab's errors by the names and messages of their causes."""

from typing import Any

import pytest
from pyspark.errors import PySparkException

from trimtab.consumer_sdk.errors import CommitConflictError, LakeUnavailableError, StorageClientMissingError
from trimtab.consumer_sdk.lake.spark.jvm_errors import to_trimtab_error


class Throwable:
    """A Java throwable as py4j shows it."""

    def __init__(self, name: str, message: str) -> None:
        self.name, self.message = name, message

    def getClass(self) -> "Throwable":  # noqa: N802 - Java's names
        return self

    def getName(self) -> str:  # noqa: N802
        return self.name

    def getMessage(self) -> str:  # noqa: N802
        return self.message

    def getCause(self) -> None:  # noqa: N802
        return None


def translate(name: str, message: str) -> Exception:
    error: Any = PySparkException("")
    error._origin = Throwable(name, message)
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
