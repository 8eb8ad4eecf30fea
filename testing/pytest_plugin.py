"""pytest plugin of the testing kit, found by its entry point; nothing heavy loads before a fixture needs it.

The broker runs once per session and worker of pytest-xdist; names of topics and groups are unique.
"""

import warnings
from collections.abc import Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.testing.kafka_broker import RunningBroker
    from trimtab.testing.lake_folder import LakeFolder
    from trimtab.testing.simulated_group import GroupReport
    from trimtab.testing.topics import KafkaTopics


DEPRECATED_CALLS: Final = (
    "(read|open)_text is deprecated"  # by which kafka-python 3.0 reads its protocol files
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that repeats one history."""
    parser.addoption(
        "--simulated-seed",
        type=int,
        metavar="SEED",
        help="run only this history of simulated_group, and print its events if the test fails",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Let conftest.py, imported before `pytest_configure`, use Trimtab with `filterwarnings = error`."""
    warnings.filterwarnings("ignore", DEPRECATED_CALLS, DeprecationWarning)


def pytest_configure(config: pytest.Config) -> None:
    """Let tests run with `filterwarnings = error`."""
    config.addinivalue_line("filterwarnings", f"ignore:{DEPRECATED_CALLS}:DeprecationWarning")


@pytest.fixture(scope="session")
def kafka_broker() -> "Iterator[RunningBroker]":
    """Run a real broker; `kafka_broker.bootstrap` is its address."""
    from trimtab.testing.kafka_broker import run_broker  # noqa: PLC0415 - as said above

    with run_broker() as broker:
        yield broker


@pytest.fixture
def kafka_topics(kafka_broker: "RunningBroker", request: pytest.FixtureRequest) -> "KafkaTopics":
    """Return a factory of topics of this test, which also fills them."""
    from trimtab.testing.topics import KafkaTopics  # noqa: PLC0415 - as said above

    return KafkaTopics(kafka_broker.bootstrap, request.node.name)


@pytest.fixture
def kafka_group(request: pytest.FixtureRequest) -> str:
    """Return a unique name of a consumer group."""
    from trimtab.testing.topics import make_unique_name  # noqa: PLC0415 - as said above

    return f"{make_unique_name(request.node.name)}-group"


@pytest.fixture
def lake_folder(kafka_broker: "RunningBroker", kafka_group: str, tmp_path: "Path") -> "LakeFolder":
    """Return an empty folder for lake tables, with a reader."""
    from trimtab.testing.lake_folder import LakeFolder  # noqa: PLC0415 - as said above

    return LakeFolder(tmp_path / "lake", kafka_broker.bootstrap, kafka_group)


@pytest.fixture
def simulated_group(request: pytest.FixtureRequest) -> Any:
    """`simulate_group`, of the seed in `--simulated-seed` only if that is given."""
    from trimtab.testing.simulated_group import simulate_group  # noqa: PLC0415 - as said above

    seed: int | None = request.config.getoption("--simulated-seed")

    @wraps(simulate_group)
    def simulate(*arguments: Any, **options: Any) -> "GroupReport":
        if seed is not None:
            options.update(seed=seed, histories=1)
        return simulate_group(*arguments, **options)

    return simulate
