"""Clients of object storages, by table format: jars, settings, and the class to look for.

Iceberg reads and writes S3 and Google Cloud Storage by clients of its own, which a catalog names
(`io-impl`); Delta, and Iceberg on Azure, by Hadoop's file systems. Credentials are none of these
settings: each client finds them in the environment, in files or in the role of its machine.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trimtab.consumer_sdk.java.jars import NO_DEPENDENCIES
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, ICEBERG_FORMAT, SessionConfig
from trimtab.consumer_sdk.lake.options.storage_config import AZURE, GCS, S3, StorageConfig

ICEBERG_VERSION: Final = "1.11.0"
HADOOP_VERSION: Final = "3.4.2"  # of pyspark's jars: Hadoop refuses clients of another version
AWS_SDK_VERSION: Final = "2.29.52"  # that of hadoop-aws
DEFAULT_S3_REGION: Final = "us-east-1"  # of an endpoint without a region: the SDK signs requests with one
# By default S3A sends a request up to 40 times: the SDK 5 times, and again after 1 s, 2 s, 4 s and so on. To
# a store that does not answer that takes 3 minutes, without a line in the log, and Delta repeats it. Behind
# these retries the flush is tried again. "Slow down" has a limit of its own.
_S3A_RETRIES: Final = {"fs.s3a.attempts.maximum": "3", "fs.s3a.retry.limit": "2"}
_HADOOP: Final = "spark.hadoop."
# Libraries that Spark provides; other versions would conflict.
_PROVIDED_BY_SPARK: Final = (
    "com.fasterxml.jackson.core:*",
    "commons-codec:*",
    "commons-logging:*",
    "io.netty:*",
    "org.apache.hadoop:hadoop-common",
    "org.apache.hadoop.thirdparty:*",
    "org.apache.httpcomponents:*",
    "org.slf4j:*",
)


@dataclass(frozen=True, slots=True)
class StorageClient:
    """Client of a storage for one table format."""

    name: str  # of its jars
    coordinates: tuple[str, ...]  # of Maven
    client_class: str  # exists in these jars only
    catalog: Mapping[str, str] = field(default_factory=dict[str, str])  # settings of an Iceberg catalog
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str])  # settings of a Spark session
    excludes: tuple[str, ...] = ()


def resolve_client(config: SessionConfig) -> StorageClient | None:
    """Return the client of `lake.storage` for the table format, None without that setting."""
    if not config.storage.name:
        return None
    return _CLIENTS[config.format, config.storage.name](config.storage)


def list_client_classes(table_format: str, storage: str) -> tuple[str, ...]:
    """Return the classes of which a session needs one to reach a storage."""
    formats = {table_format, DELTA_FORMAT}  # Iceberg may use Hadoop's client, which is Delta's
    config = StorageConfig(storage)
    return tuple(sorted({_CLIENTS[name, storage](config).client_class for name in formats}))


def _build_s3_file_io(config: StorageConfig) -> StorageClient:
    settings = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": config.endpoint,
        "client.region": choose_region(config, os.environ),
        "s3.path-style-access": "true" if config.path_style else "",
    }
    return StorageClient(
        "iceberg-s3",
        (f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG_VERSION}",),
        "software.amazon.awssdk.services.s3.S3Client",
        catalog={name: value for name, value in settings.items() if value},
    )


def _build_s3a_client(config: StorageConfig) -> StorageClient:
    settings = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",  # s3:// as Iceberg writes it
        # as Iceberg's client; S3A's own list lacks the profile's file and the token of a service account
        "fs.s3a.aws.credentials.provider": (
            "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider,"
            "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider,"
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
        "fs.s3a.endpoint": config.endpoint,
        "fs.s3a.endpoint.region": choose_region(config, os.environ),
        "fs.s3a.path.style.access": "true" if config.path_style else "",
        **_S3A_RETRIES,
    }
    # hadoop-aws names the SDK's bundle of all services, 640 MB; S3 needs 12 MB of it
    modules = (f"software.amazon.awssdk:{m}:{AWS_SDK_VERSION}" for m in ("s3", "s3-transfer-manager", "sts"))
    return StorageClient(
        "hadoop-s3",
        (f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}", *modules),
        "org.apache.hadoop.fs.s3a.S3AFileSystem",
        hadoop={f"{_HADOOP}{name}": value for name, value in settings.items() if value},
        excludes=(*_PROVIDED_BY_SPARK, "software.amazon.awssdk:bundle"),
    )


def choose_region(config: StorageConfig, environ: Mapping[str, str]) -> str:
    """Return the region of `lake.s3.region`; with an endpoint the environment's, or servers' usual one.

    "" leaves it to the client, which asks the environment, too, and the profile.
    """
    if config.region or not config.endpoint:
        return config.region
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or DEFAULT_S3_REGION


def _build_gcs_file_io(_: StorageConfig) -> StorageClient:
    return StorageClient(
        "iceberg-gcs",
        (f"org.apache.iceberg:iceberg-gcp-bundle:{ICEBERG_VERSION}",),
        "com.google.cloud.storage.Storage",
        catalog={"io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO"},
    )


def _build_gcs_client(_: StorageConfig) -> StorageClient:
    return StorageClient(
        "hadoop-gcs",
        ("com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26:shaded",),
        "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        hadoop={
            f"{_HADOOP}fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            f"{_HADOOP}fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        },
        excludes=(NO_DEPENDENCIES,),  # the shaded jar has them
    )


def _build_azure_client(_: StorageConfig) -> StorageClient:
    return StorageClient(
        "hadoop-azure",
        (f"org.apache.hadoop:hadoop-azure:{HADOOP_VERSION}",),
        "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
        # Iceberg's own client is not among the pinned jars: iceberg-azure-bundle
        catalog={"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"},
        # the last three serve wasb:// only
        excludes=(*_PROVIDED_BY_SPARK, "com.microsoft.azure:*", "org.eclipse.jetty:*", "com.google.*:*"),
    )


_CLIENTS: Final[Mapping[tuple[str, str], Callable[[StorageConfig], StorageClient]]] = {
    (ICEBERG_FORMAT, S3): _build_s3_file_io,
    (ICEBERG_FORMAT, GCS): _build_gcs_file_io,
    (ICEBERG_FORMAT, AZURE): _build_azure_client,
    (DELTA_FORMAT, S3): _build_s3a_client,
    (DELTA_FORMAT, GCS): _build_gcs_client,
    (DELTA_FORMAT, AZURE): _build_azure_client,
}
