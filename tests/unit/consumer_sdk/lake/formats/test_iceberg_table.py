"""Properties of new Iceberg tables."""

from trimtab.consumer_sdk.lake.formats.iceberg.table import ICEBERG_TABLE_DEFAULTS


def test_a_compression_level_has_its_codec() -> None:
    """A REST catalog need not add Iceberg's default codec; gzip, the writers' own, refuses level 1."""
    assert "write.parquet.compression-level" in ICEBERG_TABLE_DEFAULTS
    assert ICEBERG_TABLE_DEFAULTS["write.parquet.compression-codec"] == "zstd"
