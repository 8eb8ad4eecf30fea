"""Who takes care of the tables of a lake, by its format."""

from trimtab.consumer_sdk.lake.formats.delta.maintenance import DeltaKeeper
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.iceberg.maintenance import IcebergKeeper
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.lake import SparkLake
from trimtab.consumer_sdk.lake.maintenance import Keeper


def keeper(lake: SparkLake) -> Keeper:
    """Return the keeper of a lake's tables."""
    if isinstance(lake, DeltaLake):
        return DeltaKeeper(lake)
    assert isinstance(lake, IcebergLake)
    return IcebergKeeper(lake)
