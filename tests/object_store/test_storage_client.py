"""Without a client for the storage of its tables the process ends, with an error that names the setting."""

from typing import Any

import pytest

from object_store.ingest import Ingest
from object_store.rig import WAREHOUSE, ObjectStoreRig

pytestmark = [pytest.mark.object_store, pytest.mark.broker]


def lacking(table_format: str, object_store: ObjectStoreRig) -> dict[str, Any]:
    """Settings of a lake on S3 without `lake.storage`."""
    given = object_store.settings(table_format)
    return {name: value for name, value in given.items() if not name.startswith(("lake.storage", "lake.s3."))}


@pytest.mark.parametrize(
    "settings",
    [
        {"lake.file.writer": "spark"},  # the catalog alone knows where tables are: the first batch finds out
        {"lake.file.writer": "arrow"},
        {"lake.warehouse": WAREHOUSE},
        {"lake.format": "delta"},
        {"lake.format": "delta", "lake.warehouse": WAREHOUSE.replace("s3:", "s3a:")},
    ],
    ids=["rest-spark", "rest-arrow", "rest-warehouse", "delta", "delta-s3a"],
)
def test_a_missing_client_is_named(
    settings: dict[str, Any], object_store: ObjectStoreRig, ingest: Ingest, credentials: None
) -> None:
    """Not as a constructor that Iceberg cannot find, nor as an outage to wait for."""
    del credentials
    given = lacking(settings.get("lake.format", "iceberg"), object_store) | settings
    process = ingest.start({"lake.table": "lacking.{topic}", **given})
    assert process.wait(180) == 2, ingest.read_log()
    assert "set lake.storage" in ingest.read_log()
