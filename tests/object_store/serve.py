"""Serves an object store and a REST catalog until Ctrl-C, to try settings: `make try-object-store`."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from threading import Event

from object_store.servers import CREDENTIALS, Gateway, RestCatalogServer
from trimtab.cli.signals import stop_on_signals


def main() -> None:
    """Serve; the objects and the catalog stay in the folder."""
    options = parse_options()
    stop = Event()
    stop_on_signals(stop)
    folder: Path = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with (
        Gateway(folder / "store", folder / "versitygw.log", port=options.store_port) as store,
        RestCatalogServer(
            folder, folder / "rest-catalog.log", store.address, options.catalog_port
        ) as catalog,
    ):
        lines = [f"S3 at {store.address}, REST catalog at {catalog.address}; credentials:"]
        lines += [f"export {name}={value}" for name, value in CREDENTIALS.items()]
        print("\n".join(lines), flush=True)  # noqa: T201
        stop.wait()


def parse_options() -> Namespace:
    """Return the options of the command line."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--store-port", type=int, required=True)
    parser.add_argument("--catalog-port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
