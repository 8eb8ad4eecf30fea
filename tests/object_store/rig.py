"""The object store and the REST catalog, each behind a proxy that can spoil requests."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from object_store.proxy import Proxy
from object_store.servers import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Gateway, RestCatalogServer
from object_store.users import ExpiringUser

WAREHOUSE: Final = f"s3://{BUCKET}/warehouse"


class ObjectStoreRig:
    """Servers for the length of a `with` block; the objects are files below `warehouse`."""

    def __init__(self, folder: Path, *, with_catalog: bool = True) -> None:
        self.user = ExpiringUser(folder / "users")
        self.gateway = Gateway(folder / "store", folder / "versitygw.log", users=self.user.folder)
        self.warehouse = self.gateway.bucket / "warehouse"
        self.store = Proxy(self.gateway.port)
        self.server: RestCatalogServer | None = None
        self.catalog: Proxy | None = None
        if with_catalog:
            self.server = RestCatalogServer(folder, folder / "rest-catalog.log", self.store.address)
            self.catalog = Proxy(self.server.port)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.store.close)
            stack.enter_context(self.gateway)
            if self.server is not None and self.catalog is not None:
                stack.callback(self.catalog.close)
                stack.enter_context(self.server)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def settings(self, table_format: str) -> dict[str, Any]:
        """Return the settings of a lake there, without credentials."""
        if table_format == "delta" or self.catalog is None:
            where = {"lake.warehouse": WAREHOUSE}
        else:
            where = {"lake.catalog.type": "rest", "lake.catalog.uri": self.catalog.address}
        return {**where, **storage_settings(self.store.address)}

    @property
    def reader_options(self) -> dict[str, str]:
        """Settings of pyiceberg's reader, which does not pass the proxy."""
        return {
            "s3.endpoint": self.gateway.address,
            "s3.region": REGION,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
        }


def storage_settings(endpoint: str) -> dict[str, Any]:
    """Return the settings of the storage at an endpoint."""
    return {
        "lake.storage": "s3",
        "lake.s3.endpoint": endpoint,
        "lake.s3.region": REGION,
        "lake.s3.path.style.access": True,
    }
