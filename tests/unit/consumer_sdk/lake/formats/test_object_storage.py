"""Clients of object storages: one set of settings serves both table formats."""

from fnmatch import fnmatch
from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.java.jars import load_pinned_hashes
from trimtab.consumer_sdk.lake.formats.jar_downloads import list_requirements
from trimtab.consumer_sdk.lake.formats.object_storage import choose_region
from trimtab.consumer_sdk.lake.formats.table_format import SessionRequirements, resolve_requirements
from trimtab.consumer_sdk.lake.options.settings import parse_session_config
from trimtab.consumer_sdk.lake.options.storage_config import STORAGES, StorageConfig

REST = {"lake.catalog.type": "rest", "lake.catalog.uri": "http://catalog:8181"}
ON_S3 = {"lake.storage": "s3", "lake.s3.endpoint": "http://store:9000", "lake.s3.path.style.access": True}
CATALOG = "spark.sql.catalog.trimtab."


def resolve(**changes: Any) -> SessionRequirements:
    return resolve_requirements(parse_session_config(changes))


def test_iceberg_gets_the_client_and_address_of_its_catalog() -> None:
    """S3FileIO, the endpoint, the style of addresses, and the region that its signatures need."""
    settings = resolve(**REST, **ON_S3).settings
    assert {name.removeprefix(CATALOG): v for name, v in settings.items() if name.startswith(CATALOG)} == {
        "type": "rest",
        "uri": "http://catalog:8181",
        "cache-enabled": "false",
        "io.manifest.cache-enabled": "true",
        "io.manifest.cache.expiration-interval-ms": "600000",
        "io.manifest.cache.max-total-bytes": str(32 << 20),
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": "http://store:9000",
        "s3.path-style-access": "true",
        "client.region": "us-east-1",
    }


def test_delta_gets_the_same_address() -> None:
    """Hadoop's S3A, also for s3://, finds credentials as Iceberg's client does."""
    settings = resolve(**ON_S3, **{"lake.format": "delta", "lake.warehouse": "s3://lake/tables"}).settings
    hadoop = {n.removeprefix("spark.hadoop.fs."): v for n, v in settings.items() if ".hadoop." in n}
    assert hadoop.pop("s3a.aws.credentials.provider").endswith(".DefaultCredentialsProvider")
    assert hadoop == {
        "s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "s3a.endpoint": "http://store:9000",
        "s3a.endpoint.region": "us-east-1",
        "s3a.path.style.access": "true",
        "s3a.attempts.maximum": "3",
        "s3a.retry.limit": "2",
    }


@pytest.mark.parametrize(
    ("config", "environ", "region"),
    [
        (StorageConfig("s3", "http://store:9000"), {}, "us-east-1"),
        (StorageConfig("s3", "http://store:9000"), {"AWS_REGION": "eu-west-1"}, "eu-west-1"),
        (StorageConfig("s3", "http://store:9000"), {"AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-2"),
        (StorageConfig("s3", "http://store:9000", "eu-west-3"), {"AWS_REGION": "eu-west-1"}, "eu-west-3"),
        (StorageConfig("s3"), {"AWS_REGION": "eu-west-1"}, ""),
    ],
)
def test_the_region_is_the_setting_or_the_environments(
    config: StorageConfig, environ: dict[str, str], region: str
) -> None:
    """A server at an endpoint of its own takes a default; AWS's client asks the environment itself."""
    assert choose_region(config, environ) == region


@pytest.mark.parametrize(
    ("warehouse", "folder"),
    [("/lake", "file:/lake"), ("s3://lake/tables", "file:///*/trimtab-spark-warehouse")],
)
def test_sparks_default_database_is_local(warehouse: str, folder: str) -> None:
    """Spark makes its folder before the first statement, and waits for a storage that does not answer."""
    settings = resolve(**{"lake.format": "delta", "lake.warehouse": warehouse}).settings
    assert fnmatch(settings["spark.sql.warehouse.dir"], folder)


def test_settings_of_the_user_win() -> None:
    """A catalog's own setting stays as it is written; AWS without an endpoint asks the environment."""
    own = {"lake.catalog.io-impl": "org.apache.iceberg.io.ResolvingFileIO"}
    settings = resolve(**REST, **own, **{"lake.storage": "s3"}).settings
    assert settings[f"{CATALOG}io-impl"] == "org.apache.iceberg.io.ResolvingFileIO"
    assert not [name for name in settings if "region" in name or "endpoint" in name]


def test_without_the_setting_nothing_changes() -> None:
    """Users with jars of their own keep them."""
    requirements = resolve(**REST, **{"lake.warehouse": "s3://lake/tables"})
    assert requirements.storage is None
    assert f"{CATALOG}io-impl" not in requirements.settings


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"lake.storage": "azur"}, "did you mean 'azure'"),
        ({"lake.s3.endpoint": "http://store:9000"}, r"lake\.s3\.endpoint: set lake\.storage=s3"),
        ({"lake.storage": "gcs", "lake.s3.region": "x"}, r"lake\.s3\.region: set lake\.storage=s3"),
        (
            {"lake.storage": "s3", "lake.warehouse": "gs://lake"},
            "location of another storage; write lake.storage=gcs",
        ),
        (
            {"lake.storage": "s3", "lake.warehouse": "lake/warehouse"},
            "no location of it; write one like s3://BUCKET/FOLDER",
        ),
        ({"lake.storage": "azure", "lake.warehouse": "file:///lake"}, "one like abfss://CONTAINER"),
        ({"lake.s3.region": "x", "lake.s3.regoin": "x"}, r"did you mean 'lake\.s3\.region'"),
    ],
)
def test_a_contradiction_is_an_error(change: dict[str, Any], text: str) -> None:
    """The error says what to write."""
    with pytest.raises(SettingError, match=text):
        resolve(**REST, **change)


def test_iceberg_on_a_storage_needs_a_catalog() -> None:
    """The embedded one is a file. A location may have credentials, so the error does not show it."""
    with pytest.raises(SettingError, match="describe a catalog with lake") as refused:
        resolve(**{"lake.storage": "s3", "lake.warehouse": "s3://key:hush@lake/tables"})
    assert "hush" not in str(refused.value)


def test_the_jars_of_all_storages_are_pinned() -> None:
    """As those of the table formats: no storage's client runs unchecked."""
    named = [c for r in list_requirements(STORAGES) if r.storage for c in r.storage.coordinates]
    files = {f"{'-'.join(coordinate.split(':')[1:])}.jar" for coordinate in named}
    assert files <= set(load_pinned_hashes())
    assert len(files) == 8
