"""Object storage of the tables: `lake.storage` and `lake.s3.*`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

S3: Final = "s3"
GCS: Final = "gcs"
AZURE: Final = "azure"
STORAGES: Final = (S3, GCS, AZURE)
LOCATION_EXAMPLES: Final[Mapping[str, str]] = {
    S3: "s3://BUCKET/FOLDER",
    GCS: "gs://BUCKET/FOLDER",
    AZURE: "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
}
_STORAGE_BY_SCHEME: Final[Mapping[str, str]] = {"s3": S3, "s3a": S3, "gs": GCS, "abfs": AZURE, "abfss": AZURE}


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Storage and, for S3, its address; credentials are the environment's."""

    name: str = ""  # empty: Spark's file systems, or those of the user's jars and settings
    endpoint: str = ""
    region: str = ""
    path_style: bool = False


def find_storage(location: str) -> str:
    """Return the object storage of a location, "" for any other location."""
    scheme, separator, _ = location.partition("://")
    return _STORAGE_BY_SCHEME.get(scheme.lower(), "") if separator else ""


def resolve_warehouse(warehouse: str) -> str:
    """Return the URI of a warehouse, or the absolute path of its folder."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", warehouse):  # a URI
        return warehouse
    # Processes with other working directories must mean the same folder.
    return str(Path(warehouse).expanduser().absolute())
