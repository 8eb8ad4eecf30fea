"""A Docker engine for the tests of the folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containers.engine import engine


@pytest.fixture(scope="session")
def docker_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the engine that the tests start themselves."""
    return tmp_path_factory.mktemp("docker")


@pytest.fixture(scope="session")
def docker(docker_folder: Path) -> Iterator[Any]:
    """Client of a Docker engine."""
    with engine(docker_folder) as client:
        yield client
