"""Lake of a command: --config or --warehouse, and a Spark session while the command runs."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trimtab.cli.terminal import print_line
from trimtab.common.errors import SettingError
from trimtab.common.settings.config_file import load_config_file
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.options.settings import parse_session_config
from trimtab.consumer_sdk.lake.session import factory
from trimtab.consumer_sdk.lake.tables.inventory import check_lake_exists, detect_lake_format


def load_lake_settings(config: Path | None, warehouse: Path | None) -> dict[str, Any]:
    """Return the flat configuration. Raises SettingError."""
    if config is not None:
        return load_config_file(config) | ({} if warehouse is None else {"lake.warehouse": str(warehouse)})
    if warehouse is None:
        raise SettingError("the lake is missing; write --config FILE or --warehouse DIR")
    # Iceberg and Delta leave different files behind, so that a bare folder needs no configuration
    return {"lake.warehouse": str(warehouse), "lake.format": detect_lake_format(warehouse)}


@contextmanager
def open_lake_session(config: Mapping[str, Any]) -> Generator[SparkLake]:
    """Open the lake of a configuration in a new Spark session; close both. Raises SettingError."""
    session = parse_session_config(config)
    check_lake_exists(session)  # Spark would create an empty one
    print_line("starting Spark", err=True)  # on a busy machine it takes a minute
    lake = factory.open_lake(session)
    try:
        yield lake
    finally:
        lake.close()


def select_tables(lake: SparkLake, names: list[str] | None) -> list[str]:
    """Return the named tables, or all. Raises SettingError for an unknown name."""
    known = lake.list_tables()
    for name in names or []:
        if name not in known:
            raise SettingError(f"there is no table {name!r}; there are: {', '.join(known) or 'none'}")
    return sorted(set(names)) if names else known
