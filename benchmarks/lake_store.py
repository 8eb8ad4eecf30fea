"""Store of a benchmark's lake: a folder of this machine, or an S3 server with Iceberg's REST catalog on it.

S3 is versitygw, which `make object-store` builds once. Needs PYTHONPATH=tests there.
"""

import os
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT

DISK: Final = "disk"
S3: Final = "s3"
STORES: Final = (DISK, S3)


@dataclass(frozen=True, slots=True)
class LakeStore:
    """Settings of a lake, and what a store logs of its requests."""

    settings: Mapping[str, Any]
    request_logs: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Requests of the processes (`process`), and of the catalog, which keeps the tables' metadata there."""

    def count_requests(self) -> dict[str, Counter[str]]:
        """Return the requests so far by log and by action of S3."""
        return {name: count_requests(log) for name, log in self.request_logs.items()}


@contextmanager
def serve_store(store: str, folder: Path, table_format: str) -> Generator[LakeStore]:
    """Yield an empty lake; the credentials of S3 are then in this process's environment."""
    if store == DISK:
        yield LakeStore({"lake.warehouse": str(folder / "lake")})
        return
    from object_store.rig import WAREHOUSE, storage_settings  # noqa: PLC0415 - the disk needs no tests
    from object_store.servers import CREDENTIALS, Gateway, RestCatalogServer  # noqa: PLC0415

    os.environ.update(CREDENTIALS)
    logs = {name: folder / f"{name}.log" for name in ("process", "catalog")}
    servers_log = folder / "servers.log"
    with (
        # two servers of the same objects: one logs the requests of the processes, one the catalog's
        Gateway(folder / "store", servers_log, access_log=logs["process"]) as gateway,
        Gateway(folder / "store", servers_log, access_log=logs["catalog"]) as catalogs_gateway,
    ):
        storage = storage_settings(gateway.address)
        if table_format == DELTA_FORMAT:
            yield LakeStore({"lake.warehouse": WAREHOUSE, **storage}, logs)
            return
        with RestCatalogServer(folder, folder / "rest-catalog.log", catalogs_gateway.address) as catalog:
            address = {"lake.catalog.type": "rest", "lake.catalog.uri": catalog.address}
            yield LakeStore({**address, **storage}, logs)


def count_requests(log: Path) -> Counter[str]:
    """Return the requests of versitygw's access log by the action of S3."""
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter(
        word.removeprefix("s3_") for line in lines for word in line.split()[:9] if word.startswith("s3_")
    )
