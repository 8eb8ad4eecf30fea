"""Files of executors that this machine does not see."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.spark.cluster_storage import check_files_visible
from trimtab.consumer_sdk.lake.writer.error_scope import concerns_all

OBJECTS = ["s3://bucket/t/1.parquet", "abfss://c@a.dfs.core.windows.net/t/1.parquet", "hdfs://n/t/1.parquet"]


def session(master: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master))


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_file_that_is_not_here_is_refused_by_name(tmp_path: Path, scheme: str) -> None:
    """Directories of partitions hold escaped values, which are names as they are."""
    seen, missing = tmp_path / "country=a%2Fb" / "1.parquet", tmp_path / "2.parquet"
    seen.parent.mkdir()
    seen.touch()
    cluster = session("spark://m:7077")
    check_files_visible(cluster, "lake.a", [f"{scheme}{seen}", *OBJECTS])
    with pytest.raises(
        SettingError, match=rf"lake\.a: .*spark://m:7077.*{missing}.*lake\.warehouse"
    ) as refused:
        check_files_visible(cluster, "lake.a", [f"{scheme}{seen}", f"{scheme}{missing}"])
    assert not concerns_all(refused.value)  # another table may be on an object storage


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]"])
def test_executors_of_this_process_see_what_it_sees(master: str) -> None:
    """Nothing is looked at: each look takes a call into the JVM."""
    check_files_visible(session(master), "lake.a", (pytest.fail("looked") for _ in range(1)))
