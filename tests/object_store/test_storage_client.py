"""Without a client for the storage of its tables nothing waits for an outage: the error names the setting."""

from collections.abc import Callable
from typing import Any

import pytest

from object_store.ingest import Ingest
from object_store.rig import WAREHOUSE, ObjectStoreRig

pytestmark = [pytest.mark.object_store, pytest.mark.broker]

ADVICE = "set lake.storage"


def lacking(table_format: str, object_store: ObjectStoreRig) -> dict[str, Any]:
    """Settings of a lake on S3 without `lake.storage`."""
    given = object_store.settings(table_format)
    return {name: value for name, value in given.items() if not name.startswith(("lake.storage", "lake.s3."))}


@pytest.mark.parametrize(
    "settings",
    [
        {"lake.warehouse": WAREHOUSE},
        {"lake.format": "delta"},
        {"lake.format": "delta", "lake.warehouse": WAREHOUSE.replace("s3:", "s3a:")},
    ],
    ids=["rest-warehouse", "delta", "delta-s3a"],
)
def test_a_missing_client_is_named_at_the_start(
    settings: dict[str, Any], object_store: ObjectStoreRig, ingest: Ingest, credentials: None
) -> None:
    """Not as a constructor that Iceberg cannot find, nor as an outage to wait for."""
    del credentials
    given = lacking(settings.get("lake.format", "iceberg"), object_store) | settings
    process = ingest.start({"lake.table": "lacking.{topic}", **given})
    assert process.wait(180) == 2, ingest.read_log()
    assert ADVICE in ingest.read_log()


@pytest.mark.parametrize("writer", ["spark", "arrow"], ids=["rest-spark", "rest-arrow"])
def test_a_table_whose_storage_has_no_client_is_halted(
    writer: str,
    object_store: ObjectStoreRig,
    ingest: Ingest,
    credentials: None,
    eventually: Callable[..., None],
) -> None:
    """A REST catalog alone knows where a table is; other tables may be elsewhere, so the process goes on."""
    del credentials
    given = lacking("iceberg", object_store) | {"lake.file.writer": writer}
    process = ingest.start({"lake.table": "lacking.{topic}", **given})
    halts = (" halted, ", ADVICE)
    eventually(
        lambda: (
            process.poll() is not None
            or any(all(part in line for part in halts) for line in ingest.read_log().splitlines())
        ),
        timeout=180,
    )
    assert process.poll() is None, ingest.read_log()
