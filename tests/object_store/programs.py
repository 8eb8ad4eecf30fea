"""Programs of the object store's rig, each fetched or built once into Trimtab's cache."""

import importlib.util
from pathlib import Path
from typing import Final

from cluster import binaries
from trimtab.consumer_sdk.java.jars import fetch_jars

ICEBERG: Final = "1.11.0"
JETTY: Final = "12.1.1"
REST_SERVER_JARS: Final = (
    f"org.apache.iceberg:iceberg-core:{ICEBERG}",
    f"org.apache.iceberg:iceberg-aws:{ICEBERG}",
    f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}",
    f"org.eclipse.jetty:jetty-server:{JETTY}",
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-server:{JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-gzip:{JETTY}",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
REST_SERVER_FIXTURES: Final = (
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",
)
"""Iceberg publishes its REST catalog as fixtures of its own tests."""

HADOOP: Final = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar")
GATEWAY: Final = "versitygw"


def find_gateway() -> Path:
    """Return versitygw, an S3 server over a folder; build it if needed. Raises OSError, RuntimeError."""
    return binaries.find(GATEWAY)


def has_gateway() -> bool:
    """Return whether versitygw is at hand."""
    return binaries.there(GATEWAY) is not None


def rest_server_jars() -> tuple[Path, ...]:
    """Return the class path of Iceberg's REST catalog. Raises JarsUnavailableError."""
    # apart: with a classifier, Ivy leaves out the module's other JARs
    jars = fetch_jars("iceberg-rest-server", REST_SERVER_JARS, is_pinned=False)
    fixtures = fetch_jars("iceberg-rest-fixtures", REST_SERVER_FIXTURES, is_pinned=False)
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    (folder,) = spec.submodule_search_locations or ()
    hadoop = [jar for pattern in HADOOP for jar in sorted(Path(folder, "jars").glob(pattern))]
    return (*jars, *fixtures, *hadoop)
