"""A real broker for tests: one that runs already, a container, or an embedded one.

TRIMTAB_TEST_BOOTSTRAP has the address of a running broker. Else TRIMTAB_TEST_BROKER decides: "container",
"embedded", or "auto" (default): a container if a Docker engine answers, else the embedded broker.
TRIMTAB_TEST_IMAGE names another image than apache/kafka, such as its copy in a company's registry.
"""

import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from trimtab.cli.broker import broker_config
from trimtab.cli.broker.embedded_broker import LOG_TAIL_LINES, EmbeddedBroker
from trimtab.common.errors import SettingError
from trimtab.testing.errors import ContainerBrokerError

BrokerSource: TypeAlias = Literal["address", "container", "embedded"]

ADDRESS_VARIABLE: Final = "TRIMTAB_TEST_BOOTSTRAP"
SOURCE_VARIABLE: Final = "TRIMTAB_TEST_BROKER"
IMAGE_VARIABLE: Final = "TRIMTAB_TEST_IMAGE"
SOURCES: Final = ("auto", "container", "embedded")
KAFKA_IMAGE: Final = f"apache/kafka:{broker_config.KAFKA_VERSION}"
CONTROLLER_PORT: Final = 19093
CONTAINER_START_TIMEOUT_S: Final = 180.0  # under 30 other processes on two cores it took more than 60


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that answers: its address for `bootstrap.servers`, and what runs it."""

    bootstrap: str
    source: BrokerSource


@contextmanager
def run_broker() -> Generator[RunningBroker]:
    """Run a broker for the length of a `with` block.

    Raises SettingError for an unknown TRIMTAB_TEST_BROKER, and the errors of `EmbeddedBroker.start`.
    """
    address = os.environ.get(ADDRESS_VARIABLE)
    source = os.environ.get(SOURCE_VARIABLE, "auto")
    if source not in SOURCES:
        raise SettingError(f"{SOURCE_VARIABLE}={source!r} is none of {', '.join(SOURCES)}")
    if address:
        yield RunningBroker(address, "address")
    elif source == "container":
        with run_container() as container:
            yield container
    elif source == "auto" and _docker_answers():
        with _run_container_or_embedded() as broker:
            yield broker
    else:
        with EmbeddedBroker() as broker:
            yield RunningBroker(broker.bootstrap, "embedded")


@contextmanager
def run_container(image: str | None = None, **options: Any) -> Generator[RunningBroker]:
    """Run Kafka's image with the embedded broker's settings; host and container use the same port.

    The image is `image`, else that of TRIMTAB_TEST_IMAGE, else apache/kafka. `options` go to
    `docker run`, such as `network_mode="host"`. Needs testcontainers, of the extra `testing`. Raises
    ContainerBrokerError, and what Docker's client raises.
    """
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only with Docker

    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    image = image or os.environ.get(IMAGE_VARIABLE, KAFKA_IMAGE)
    container = DockerContainer(image).with_kwargs(**options)
    if "network_mode" not in options:
        container = container.with_bind_ports(port, port)
    address = f"{container.get_docker_client().host()}:{port}"
    for name, value in _container_properties(port, address).items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    with container:
        client = AdminClient({"bootstrap.servers": address, "log_level": 0})
        try:
            client.list_topics(timeout=CONTAINER_START_TIMEOUT_S)
        except KafkaException:
            lines = b"\n".join(container.get_logs()).decode(errors="replace").splitlines()
            tail = "\n".join(lines[-LOG_TAIL_LINES:])
            raise ContainerBrokerError(image, CONTAINER_START_TIMEOUT_S, tail) from None
        yield RunningBroker(address, "container")


def _container_properties(port: int, address: str) -> dict[str, str]:
    """Return the settings that Kafka's image takes from environment variables."""
    return {
        **broker_config.DEFAULT_PROPERTIES,
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:{CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@localhost:{CONTROLLER_PORT}",
    }


@contextmanager
def _run_container_or_embedded() -> Generator[RunningBroker]:
    container = run_container()
    try:
        broker = container.__enter__()
    except Exception as error:  # noqa: BLE001 - an engine may run without access to images
        sys.stderr.write(f"no Kafka container ({error}): using the embedded broker\n")
        with EmbeddedBroker() as embedded:
            yield RunningBroker(embedded.bootstrap, "embedded")
        return
    try:
        yield broker
    finally:
        container.__exit__(None, None, None)


def _docker_answers() -> bool:
    try:
        import docker  # noqa: PLC0415 - of the extra `testing`; needed only without an address
        from docker.errors import DockerException  # noqa: PLC0415
    except ModuleNotFoundError:
        return False
    try:
        client = docker.from_env()
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except Exception:  # noqa: BLE001 - any failure means that no engine is usable
        return False
    finally:
        client.close()
