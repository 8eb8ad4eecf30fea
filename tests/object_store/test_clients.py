"""The pinned jars of each storage are complete: its client starts beside Spark's jars, without a server."""

from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from trimtab.consumer_sdk.lake.formats.jar_downloads import list_requirements
from trimtab.consumer_sdk.lake.formats.table_format import SessionRequirements
from trimtab.consumer_sdk.lake.options.storage_config import STORAGES

pytestmark = pytest.mark.object_store

SPARK_JARS = f"{Path(pyspark.__file__).parent}/jars/*"
LOCATIONS = {
    "hadoop-s3": "s3://lake/tables",
    "hadoop-gcs": "gs://lake/tables",
    "hadoop-azure": "abfss://lake@account.dfs.core.windows.net/tables",
}
OFFLINE = {  # without a request for credentials or for the bucket
    "fs.s3a.endpoint.region": "eu-central-1",
    "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
    "fs.gs.auth.service.account.enable": "false",
    "fs.gs.auth.null.enable": "true",
    "fs.azure.account.key.account.dfs.core.windows.net": "a2V5",
    "fs.azure.account.hns.enabled": "true",
    "fs.azure.io.retry.max.retries": "0",
}
REQUIREMENTS = [requirements for requirements in list_requirements(STORAGES) if requirements.storage]


@pytest.mark.parametrize("requirements", REQUIREMENTS, ids=lambda r: f"{r.name}-on-{r.storage.name}")
def test_the_client_of_a_storage_starts(requirements: SessionRequirements) -> None:
    """Iceberg's FileIO is created, Hadoop's file system opened."""
    client = requirements.storage
    assert client
    classpath = ":".join([*map(str, requirements.fetch_jars()), SPARK_JARS])
    port: Any = launch_gateway(classpath=classpath, die_on_exit=True, javaopts=["-Xmx256m"])
    gateway: Any = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        jvm = gateway.jvm
        assert str(jvm.java.lang.Class.forName(client.client_class).getName()) == client.client_class
        conf = jvm.org.apache.hadoop.conf.Configuration()
        given = {name.removeprefix("spark.hadoop."): value for name, value in client.hadoop.items()}
        for name, value in (given | OFFLINE).items():
            conf.set(name, value)
        if requirements.name == "iceberg":
            create = jvm.org.apache.iceberg.CatalogUtil.loadFileIO
            assert create(client.catalog["io-impl"], {**client.catalog}, conf)
        if client.name in LOCATIONS:
            location = jvm.org.apache.hadoop.fs.Path(LOCATIONS[client.name])
            opened = str(location.getFileSystem(conf).getClass().getName())
            assert opened.rpartition(".")[0] == client.client_class.rpartition(".")[0]  # abfss: a subclass
    finally:
        gateway.shutdown()
