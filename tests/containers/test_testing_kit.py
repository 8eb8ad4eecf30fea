"""The testing kit's broker in a container, as users have it whose machine has Docker."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from containers.engine import SOCKET
from containers.kafka_image import provide_kafka_image
from trimtab.testing import kafka_broker
from trimtab.testing.errors import ContainerBrokerError
from trimtab.testing.kafka_broker import IMAGE_VARIABLE, SOURCE_VARIABLE

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1200)]

USERS_TEST: Final = """
from trimtab.consumer_sdk import Consumer


def test_records_arrive(kafka_broker, kafka_topics, kafka_group):
    assert kafka_broker.source == "container"
    topic = kafka_topics(partitions=2)
    written = kafka_topics.produce_stream(topic, 500)
    config = {"bootstrap.servers": kafka_broker.bootstrap, "group.id": kafka_group}
    places = set()
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        while len(places) < len(written):
            places |= {(one.partition(), one.offset()) for one in consumer.consume(500, timeout=1.0)}
    assert places == {(one.partition, one.offset) for one in written}
"""


@pytest.fixture(scope="session")
def kit_environment(docker: Any, docker_folder: Path) -> dict[str, str]:
    """The environment of a user whose Docker engine has the image; no registry is asked for any other."""
    socket = docker_folder / SOCKET
    own_engine = {"DOCKER_HOST": f"unix://{socket}"} if socket.exists() else {}
    image = provide_kafka_image(docker, docker_folder)
    without_ryuk = {"TESTCONTAINERS_RYUK_DISABLED": "true"}  # an image of its own, which ends what is left
    return {**os.environ, **own_engine, **without_ryuk, IMAGE_VARIABLE: image}


@pytest.mark.parametrize("source", ["container", "auto"])
def test_a_users_test_runs_on_a_container(
    source: str, docker: Any, kit_environment: dict[str, str], tmp_path: Path
) -> None:
    """The fixtures write records to Kafka in a container and read them; it ends with the run."""
    (tmp_path / "test_mine.py").write_text(USERS_TEST)
    before = docker.containers.list(all=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        env=kit_environment | {SOURCE_VARIABLE: source},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert docker.containers.list(all=True) == before


def test_a_broker_that_does_not_start_is_explained(
    docker: Any, kit_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the end of the container's log, and the container is gone."""
    for name, value in kit_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(kafka_broker, "CONTAINER_START_TIMEOUT_S", 5.0)
    before = docker.containers.list(all=True)
    with (
        pytest.raises(ContainerBrokerError, match="no Kafka here"),
        kafka_broker.run_container(entrypoint=["bash", "-c", "echo no Kafka here; sleep 600"]),
    ):
        pass
    assert docker.containers.list(all=True) == before
