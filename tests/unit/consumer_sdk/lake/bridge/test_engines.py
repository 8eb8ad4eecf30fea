"""Selection of what reads a table."""

from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.bridge import engines
from trimtab.consumer_sdk.lake.options.settings import LakeConfig, parse_lake_config

BASE = {"group.id": "g", "enable.auto.commit": False, "lake.warehouse": "/data/lake"}
NEEDS_SPARK = [
    {"lake.transform": "json:dumps"},
    {"lake.decoder": "json", "lake.schema": "id BIGINT"},
    {"lake.catalog.type": "rest", "lake.catalog.uri": "http://catalog:8181"},
    {"lake.warehouse": "s3a://bucket/lake", "lake.format": "delta"},
]


def config(**more: Any) -> LakeConfig:
    return parse_lake_config({**BASE, **more})


@pytest.mark.parametrize("more", NEEDS_SPARK)
def test_what_only_spark_can_read_is_read_with_spark(more: dict[str, str]) -> None:
    """And `engine=arrow` is refused with the reason."""
    assert engines.select_engine(config(**more), None) == "spark"
    with pytest.raises(SettingError, match=r"engine=arrow: lake\."):
        engines.select_engine(config(**more), "arrow")


@pytest.mark.parametrize("lake_format", ["iceberg", "delta"])
def test_a_local_lake_is_read_without_spark_if_the_library_is_there(
    lake_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, Spark reads; either engine may be chosen."""
    local = config(**{"lake.format": lake_format})
    assert engines.select_engine(local, None) == "arrow"
    assert engines.select_engine(local, "spark") == "spark"
    monkeypatch.setattr(engines, "find_spec", lambda _name: None)
    assert engines.select_engine(local, None) == "spark"
    assert engines.select_engine(local, "arrow") == "arrow"


def test_a_misspelled_engine_is_an_error() -> None:
    """With the name that was meant."""
    with pytest.raises(SettingError, match="spark"):
        engines.select_engine(config(), "sparc")
