"""Requests to a group's coordinator by kafka-python, for protocols that confluent-kafka does not offer."""

# ruff: noqa: SLF001 - kafka-python sends only to coordinators it knows by private calls

from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import Lock
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.errors import KafkaConnectionError, KafkaError, for_code
from kafka.net.compat import KafkaNetClient

from trimtab.common.clock import Clock
from trimtab.common.kafka_security import client_config
from trimtab.common.type_vars import ResultT
from trimtab.sidecar.kafka.broker_client import COORDINATOR_RETRY_INTERVAL_S
from trimtab.sidecar.settings.settings import SidecarSettings

SIDECAR_CLIENT_ID: Final = "trimtab-sidecar"
GROUP_ID_NOT_FOUND_CODE: Final = 69  # also of a group of another type
_UNTYPED_ADMIN_CLIENT: Any = KafkaAdminClient  # its methods come from mix-ins that checkers do not see


class CoordinatorClient:
    """Connection to the coordinators, reopened after an error; threads may share it."""

    def __init__(self, settings: SidecarSettings, clock: Clock, client_id: str = SIDECAR_CLIENT_ID) -> None:
        self._settings = settings
        self._clock = clock
        self._client_id = client_id
        self._admin: Any = None
        self._connecting = Lock()

    def retry(self, request: Callable[[Any], ResultT]) -> ResultT:
        """Call with a KafkaAdminClient; after a retryable error again, with a new one, until the timeout.

        Raises KafkaError, and what `request` raises.
        """
        deadline = self._clock.monotonic() + self._settings.timeout
        while True:
            try:
                return self.call(request)
            except KafkaError as error:
                if not error.retriable or self._clock.monotonic() >= deadline:
                    raise
            self._clock.sleep(COORDINATOR_RETRY_INTERVAL_S)

    def call(self, request: Callable[[Any], ResultT]) -> ResultT:
        """Call once with a KafkaAdminClient. Raises KafkaError, and what `request` raises."""
        admin = None
        try:
            admin = self._connect()
            return request(admin)
        except KafkaError:
            self._discard(admin)  # the coordinator may have moved to another broker
            raise
        except (OSError, RuntimeError) as error:  # its IO loop has crashed
            self._discard(admin)
            raise KafkaConnectionError(str(error)) from error

    def _connect(self) -> Any:
        with self._connecting:
            if self._admin is None:
                self._admin = connect_admin_client(self._settings, self._client_id)
            return self._admin

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._discard(self._admin)

    def _discard(self, admin: Any) -> None:
        with self._connecting:  # another thread may have replaced it, and closed it then
            if admin is None or self._admin is not admin:
                return
            self._admin = None
        with suppress(OSError, RuntimeError):  # a crashed one closes as well as it can
            admin.close()


def connect_admin_client(settings: SidecarSettings, client_id: str = SIDECAR_CLIENT_ID) -> Any:
    """Return a KafkaAdminClient. Raises KafkaError."""
    milliseconds = round(settings.timeout * 1000)
    with ExitStack() as opened:

        def open_connections(**config: Any) -> Any:
            client: Any = KafkaNetClient(**config)
            opened.callback(client.close)  # without a broker KafkaAdminClient leaves its thread running
            return client

        admin = _UNTYPED_ADMIN_CLIENT(
            **client_config.to_kafka_python_config(settings.client_config),
            bootstrap_servers=settings.bootstrap.split(","),
            client_id=client_id,
            request_timeout_ms=milliseconds,
            bootstrap_timeout_ms=milliseconds,
            kafka_client=open_connections,
        )
        opened.pop_all()
        return admin


def send_to_coordinator(admin: Any, group: str, request: Any) -> Any:
    """Return the response of the group's coordinator. Raises KafkaError."""

    async def send() -> Any:
        node = await admin._find_coordinator_id(group)
        return await admin._manager.send(request, node_id=node)

    return admin._manager.run(send)


def find_coordinator(admin: Any, group: str) -> int:
    """Return the id of the broker that coordinates the group. Raises KafkaError."""
    return int(admin._manager.run(admin._find_coordinator_id, group))


def raise_for_error_code(response: Any, subject: str = "") -> None:
    """Raise the KafkaError of a response that has one; the text begins with the subject."""
    if response.error_code:
        raise for_code(response.error_code)(": ".join(filter(None, (subject, response.error_message))))


def describe_group(admin: Any, group: str, request: Any) -> Any:
    """Return the only group of a describing request's response; None if no group of that type exists.

    Raises KafkaError.
    """
    (described,) = send_to_coordinator(admin, group, request).groups
    if described.error_code == GROUP_ID_NOT_FOUND_CODE:
        return None
    raise_for_error_code(described)
    return described


def fetch_group_type(admin: Any, group: str) -> str | None:
    """Return "classic", "consumer" or "share"; None if the group does not exist. Raises KafkaError."""
    return {g["group_id"]: g.get("group_type") for g in admin.list_groups()}.get(group)
