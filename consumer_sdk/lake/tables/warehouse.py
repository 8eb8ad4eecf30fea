"""Where the tables of a configuration are, and which there are, as far as that is known without Spark."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from trimtab.common.units import format_count
from trimtab.consumer_sdk.lake.formats.table_format import local_folder
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, SessionConfig

CATALOG_FILE: Final = "catalog.db"  # of the embedded catalog, in the warehouse folder
CATALOG_LOCK_TIMEOUT_S: Final = 15.0
_CREDENTIALS: Final = re.compile(r"(?<=//)[^/:@]*:[^@]*@|[?#].*")  # abfss://container@account has none
_FIND_TABLES: Final = "SELECT table_namespace, table_name FROM iceberg_tables WHERE catalog_name = ?"


def list_local_tables(config: SessionConfig) -> list[str] | None:
    """Return the sorted tables of a local folder, None for catalogs and object stores."""
    folder = _find_folder(config)
    if folder is None:
        return None
    if config.format == DELTA_FORMAT:
        return sorted(".".join(log.parts[-3:-1]) for log in folder.glob("*/*/_delta_log"))
    return _list_catalog_tables(folder / CATALOG_FILE, config.catalog_name)


def describe_warehouse(config: SessionConfig) -> str:
    """Return the absolute place of the tables without credentials, and whether a folder is new."""
    place = _CREDENTIALS.sub("", config.warehouse or "")
    if config.catalog:
        return f"catalog {config.catalog_name}{f' ({place})' if place else ''}"
    folder = _find_folder(config)
    if folder is None:
        return place
    if not folder.exists():
        return f"{folder} (a new folder)"
    count = len(list_local_tables(config) or ())
    return f"{folder} ({format_count(count, 'table') if count else 'no tables yet'})"


def _find_folder(config: SessionConfig) -> Path | None:
    return None if config.catalog or config.warehouse is None else local_folder(config.warehouse)


def _list_catalog_tables(catalog_file: Path, catalog_name: str) -> list[str]:
    if not catalog_file.exists():
        return []
    address = f"{catalog_file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, CATALOG_LOCK_TIMEOUT_S, uri=True)) as catalog:
        try:
            rows = catalog.execute(_FIND_TABLES, (catalog_name,)).fetchall()
        except sqlite3.OperationalError:  # a writer is creating the catalog
            return []
    return sorted(f"{namespace}.{name}" for namespace, name in rows)
