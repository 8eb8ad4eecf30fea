"""Serves an object store and a REST catalog until Ctrl-C, to try settings: `python -m object_store.serve`."""

from pathlib import Path
from threading import Event
from typing import Final

from object_store.servers import CREDENTIALS, Gateway, RestCatalogServer
from trimtab.cli.signals import stop_on_signals

FOLDER: Final = Path("build/object-store")
STORE_PORT, CATALOG_PORT = 9000, 8181


def main() -> None:
    """Serve; the objects and the catalog stay in FOLDER."""
    stop = Event()
    stop_on_signals(stop)
    folder = FOLDER.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with (
        Gateway(folder / "store", folder / "versitygw.log", port=STORE_PORT) as store,
        RestCatalogServer(folder, folder / "rest-catalog.log", store.address, CATALOG_PORT) as catalog,
    ):
        lines = [f"S3 at {store.address}, REST catalog at {catalog.address}; credentials:"]
        lines += [f"export {name}={value}" for name, value in CREDENTIALS.items()]
        print("\n".join(lines), flush=True)  # noqa: T201
        stop.wait()


if __name__ == "__main__":
    main()
