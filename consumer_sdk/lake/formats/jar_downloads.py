"""Downloads the jars of both table formats and the clients of storages: `… jar_downloads s3 gcs`."""

import sys
from collections.abc import Iterable, Iterator

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.formats.table_format import SessionRequirements, resolve_requirements
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, SessionConfig
from trimtab.consumer_sdk.lake.options.storage_config import STORAGES, StorageConfig


def list_requirements(storages: Iterable[str]) -> Iterator[SessionRequirements]:
    """Yield the requirements of both formats without a storage and with each of `storages`."""
    for name in storages:
        if name not in STORAGES:
            raise SettingError(f"{name!r} is not a storage; write {' or '.join(STORAGES)}")
    yield resolve_requirements(SessionConfig(warehouse="/"))  # the embedded catalog needs a driver
    catalog = {"type": "rest"}
    for name in ("", *storages):
        storage = StorageConfig(name)
        yield resolve_requirements(SessionConfig(warehouse=None, catalog=catalog, storage=storage))
        yield resolve_requirements(SessionConfig(warehouse="/", format=DELTA_FORMAT, storage=storage))


def main() -> None:
    """Download the jars for the storages on the command line."""
    for requirements in list_requirements(sys.argv[1:]):
        requirements.fetch_jars()


if __name__ == "__main__":
    main()
