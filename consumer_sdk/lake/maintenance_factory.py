"""Creates the maintenance of a lake's table format."""

from trimtab.consumer_sdk.lake.formats.delta.maintenance import DeltaMaintenance
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.iceberg.maintenance import IcebergMaintenance
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.lake import SparkLake
from trimtab.consumer_sdk.lake.maintenance import TableMaintenance


def create_maintenance(lake: SparkLake) -> TableMaintenance:
    """Return the maintenance of a lake's tables."""
    if isinstance(lake, DeltaLake):
        return DeltaMaintenance(lake)
    assert isinstance(lake, IcebergLake)
    return IcebergMaintenance(lake)
