"""Lake of a command: --config or --warehouse, and a Spark session while the command runs."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.common.errors import SettingError

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.lake import SparkLake

INGEST_CONFIG_OPTION = Annotated[
    Path | None, typer.Option("--config", "-c", help="Configuration of trimtab ingest.")
]
WAREHOUSE_OPTION = Annotated[
    Path | None, typer.Option(help="Folder of an embedded lake, instead of --config.")
]


def load_lake_settings(config: Path | None, warehouse: Path | None) -> dict[str, Any]:
    """Return the flat configuration; the format of a bare warehouse is detected from its files.

    Raises SettingError.
    """
    from trimtab.common.config_file import load_config_file  # noqa: PLC0415 - keeps --help fast
    from trimtab.consumer_sdk.lake.inventory import detect_lake_format  # noqa: PLC0415 - as above

    if config is not None:
        return load_config_file(config) | ({} if warehouse is None else {"lake.warehouse": str(warehouse)})
    if warehouse is None:
        raise SettingError("the lake is missing; write --config FILE or --warehouse DIR")
    return {"lake.warehouse": str(warehouse), "lake.format": detect_lake_format(warehouse)}


@contextmanager
def open_lake_session(config: Mapping[str, Any]) -> "Generator[SparkLake, None, None]":
    """Open the lake of a configuration in a new Spark session; close both afterwards.

    Raises SettingError if the lake does not exist.
    """
    from trimtab.consumer_sdk.lake.inventory import check_lake_exists  # noqa: PLC0415 - as above
    from trimtab.consumer_sdk.lake.settings import parse_session_config  # noqa: PLC0415 - as above
    from trimtab.consumer_sdk.lake.writer import writer  # noqa: PLC0415 - pyspark is slow to load

    wanted = parse_session_config(config)
    check_lake_exists(wanted)
    lake = writer.open_lake(wanted)
    try:
        yield lake
    finally:
        lake.close()


def select_tables(lake: "SparkLake", names: list[str] | None) -> list[str]:
    """Return the named tables, or all. Raises SettingError for an unknown name."""
    have = lake.list_tables()
    for name in names or []:
        if name not in have:
            raise SettingError(f"there is no table {name!r}; there are: {', '.join(have) or 'none'}")
    return sorted(set(names)) if names else have
