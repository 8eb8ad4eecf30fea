"""The rig, started once for all tests that need it, and processes that write to it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from object_store.ingest import CHANGE_SETTINGS, PARTITIONS, Ingest, make_settings, produce
from object_store.rig import ObjectStoreRig
from object_store.servers import CREDENTIALS


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreRig]:
    """versitygw and Iceberg's REST catalog."""
    with ObjectStoreRig(tmp_path_factory.mktemp("object-store")) as rig:
        yield rig


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the store's credentials into the environment of processes that the test starts."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def ingest(
    topic: Callable[..., str], bootstrap: str, group: str, tmp_path: Path, credentials: None
) -> Iterator[Ingest]:
    """`trimtab ingest` on a filled topic, not started yet."""
    del credentials
    name = topic(partitions=PARTITIONS)
    produce(bootstrap, name)
    made = Ingest(name, tmp_path, make_settings(bootstrap, group, name))
    yield made
    made.close()


@pytest.fixture
def changes(
    topic: Callable[..., str], bootstrap: str, group: str, tmp_path: Path, credentials: None
) -> Iterator[Ingest]:
    """`trimtab ingest` of changes, on an empty topic, not started yet."""
    del credentials
    name = topic(partitions=PARTITIONS)
    made = Ingest(name, tmp_path, make_settings(bootstrap, group, name) | CHANGE_SETTINGS)
    yield made
    made.close()
