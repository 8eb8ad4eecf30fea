"""Who takes care of the tables of a lake, by its format."""

from trimtab.consumer_sdk.lake.care import Keeper
from trimtab.consumer_sdk.lake.care_delta import DeltaKeeper
from trimtab.consumer_sdk.lake.care_iceberg import IcebergKeeper
from trimtab.consumer_sdk.lake.delta import DeltaLake
from trimtab.consumer_sdk.lake.engine import SparkLake
from trimtab.consumer_sdk.lake.iceberg import IcebergLake


def keeper(lake: SparkLake) -> Keeper:
    """Return the keeper of a lake's tables."""
    if isinstance(lake, DeltaLake):
        return DeltaKeeper(lake)
    assert isinstance(lake, IcebergLake)
    return IcebergKeeper(lake)
