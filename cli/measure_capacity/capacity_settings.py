"""Settings of a measurement: those of `trimtab ingest`, on topics and tables of its own."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import client_config
from trimtab.consumer_sdk.lake.changes import change_settings
from trimtab.consumer_sdk.lake.formats.table_format import local_folder
from trimtab.consumer_sdk.lake.options.settings import CATALOG_NAME_SETTING, CATALOG_PREFIX, REGISTRY_DECODERS

CAPACITY_SETTING: Final = "trimtab.capacity"
# The end of a case waits for its last batches, on a slow machine for minutes.
FLUSH_TIMEOUT: Final = "10 min"
# Of the paper's Table VI.
DEFAULT_CASES: Final = ("1:32:648", "5:116:100", "5:144:678")
# They name the configuration's own topics and tables, its place in the group, or its throttle.
_REPLACED_SETTINGS: Final = frozenset(
    {"topics", "group.id", "group.instance.id", "client.id", "auto.offset.reset", "lake.table", "lake.tables"}
)
_IN_BASE64: Final = "in Base64, one a line: those of a topic, whose schemas the registry has"
_NEEDED_VALUES: Final = {
    "json": "one a line, that fit lake.schema",
    **dict.fromkeys(REGISTRY_DECODERS, _IN_BASE64),
}
"""Decoders whose values cannot be made up, and the form of those in a file."""
_CHANGES: Final = "changes of more keys than a batch has"
_CAPACITY_LINE: Final = re.compile(r"""(?m)^(["']?)trimtab\.capacity\1\s*:[^#\n]*?(\s*#.*)?$""")


@dataclass(frozen=True, slots=True)
class CapacityCase:
    """One table set: topics with a table each, and their backlog."""

    tables: int
    partitions: int  # of all topics
    size: int  # bytes of all records

    def __str__(self) -> str:
        return f"{self.tables}:{self.partitions}:{self.size / 1e6:g}"

    def split_partitions(self) -> list[int]:
        """Return the number of partitions of each topic."""
        whole, more = divmod(self.partitions, self.tables)
        return [whole + (number < more) for number in range(self.tables)]


def parse_cases(texts: Sequence[str] | None) -> list[CapacityCase]:
    """Return the cases of --case. Raises SettingError."""
    return [_parse_case(text) for text in texts or DEFAULT_CASES]


def _parse_case(text: str) -> CapacityCase:
    match = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) or float(match[3]) <= 0:
        raise SettingError(
            f"--case: {text!r} is not understood; write TABLES:PARTITIONS:MB, like 5:116:100, with at "
            "least a partition for each table"
        )
    return CapacityCase(int(match[1]), int(match[2]), int(float(match[3]) * 1e6))


def build_ingest_config(
    config: Mapping[str, Any], namespace: str, warehouse: str, *, is_embedded: bool
) -> dict[str, Any]:
    """Return a configuration of `trimtab ingest` without topics and group.

    Tables get the namespace; the folder `warehouse` replaces a local one. An embedded broker has no use
    for the settings of the connection. Raises SettingError for settings by topic or table.
    """
    _check_measurable(config)
    connection = client_config.extract_connection_settings(config)
    kept = {
        name: value
        for name, value in config.items()
        if name not in _REPLACED_SETTINGS
        and not name.startswith("trimtab.")
        and not (is_embedded and name in connection)
    }
    if not has_catalog(config) and not is_remote(config):
        kept["lake.warehouse"] = warehouse
    own = {
        "lake.flush.timeout": FLUSH_TIMEOUT,
        "lake.table": f"{namespace}.{{topic}}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    return kept | own


def find_local_warehouse(config: Mapping[str, Any]) -> Path | None:
    """Return the local folder of the tables, None for a catalog, another storage or none."""
    warehouse = config.get("lake.warehouse")
    if warehouse is None or has_catalog(config):
        return None
    folder = local_folder(str(warehouse))
    return None if folder is None else folder.expanduser().absolute()


def is_remote(config: Mapping[str, Any]) -> bool:
    """Return whether the tables lie in another storage than a local folder."""
    warehouse = config.get("lake.warehouse")
    return warehouse is not None and local_folder(str(warehouse)) is None


def has_catalog(config: Mapping[str, Any]) -> bool:
    """Return whether the tables lie in a catalog, instead of in a folder with the embedded one."""
    return any(name.startswith(CATALOG_PREFIX) and name != CATALOG_NAME_SETTING for name in config)


def _check_measurable(config: Mapping[str, Any]) -> None:
    for name in ("lake.schema", "lake.partition"):
        if isinstance(config.get(name), Mapping):
            raise SettingError(f"{name} maps topics or tables of your own; write the one to measure")


def read_values(path: Path | None, config: Mapping[str, Any]) -> list[bytes]:
    """Return the values of --values, none without it. Raises SettingError."""
    decoder = str(config.get("lake.decoder"))
    if path is None:
        if decoder in _NEEDED_VALUES:
            what = _CHANGES if config.get("lake.write") == change_settings.UPSERT else "values"
            raise SettingError(
                f"lake.decoder={decoder}: write --values FILE with {what}, {_NEEDED_VALUES[decoder]}"
            )
        return []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SettingError(f"--values: {path} cannot be read: {error.strerror}") from error
    if not lines:
        raise SettingError(f"--values: {path} is empty; write one value a line")
    return [_decode_base64(path, line) for line in lines] if decoder in REGISTRY_DECODERS else lines


def _decode_base64(path: Path, line: bytes) -> bytes:
    try:
        return base64.b64decode(line, validate=True)
    except binascii.Error as error:
        raise SettingError(f"--values: {path} has a line that is not Base64: {error}") from error


def write_capacity(path: Path, capacity: str) -> None:
    """Set `trimtab.capacity` in a configuration file; its other lines stay.

    Raises SettingError, and leaves the file as it is, if the setting is not a line of its own.
    """
    text = path.read_text(encoding="utf-8")
    line = f"{CAPACITY_SETTING}: {capacity}"
    text, replaced = _CAPACITY_LINE.subn(lambda match: line + (match[2] or ""), text)
    if not replaced:
        text = f"{text.rstrip()}\n{line}\n".lstrip()
    if not _is_set(text, capacity):  # such as a mapping in braces
        raise SettingError(f"{path}: {CAPACITY_SETTING} cannot be replaced; write {line!r} by hand")
    path.write_text(text, encoding="utf-8")


def _is_set(text: str, capacity: str) -> bool:
    try:
        return bool(yaml.safe_load(text).get(CAPACITY_SETTING) == capacity)
    except (yaml.YAMLError, AttributeError):
        return False
