"""The archive of Spark's classes, without which each JVM of the tests costs nearly twice the CPU."""

from pathlib import Path

from trimtab.cli.demo.jvm_class_archive import find_archive
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.spark.gateway import py4j_gateway


def test_the_sessions_jvm_uses_the_archive(iceberg: IcebergLake) -> None:
    """The archive that `make test` creates before it starts the tests is what their JVM maps into memory."""
    archive = find_archive()
    assert archive is not None, "run `make test`, or: python -m trimtab.cli.demo.jvm_class_archive"
    assert str(archive) in Path(f"/proc/{py4j_gateway(iceberg.spark).proc.pid}/maps").read_text()
