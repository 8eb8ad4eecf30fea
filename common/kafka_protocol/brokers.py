"""The brokers of a cluster: one connection to each, found by address, by id, or as a group's coordinator.

1. Any broker answers what all know: the one that answered last, then the others in random order, each in a
   share of the time, so that dead addresses at the front of a list delay the answer but do not prevent it.
2. A coordinator is remembered until a response says that it has moved, or none comes.
3. Several brokers are asked at once, by a thread each: a slow one delays no other's answer.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar

from trimtab.common import tls
from trimtab.common.clock import Clock
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.apis import Api
from trimtab.common.kafka_protocol.connection import Address, BrokerConnection, ConnectionOptions, Request
from trimtab.common.kafka_protocol.errors import (
    ConnectionFailedError,
    CoordinatorUnavailableError,
    KafkaRequestError,
    NotCoordinatorError,
    RequestTimeoutError,
    make_error,
    raise_for_code,
)
from trimtab.common.kafka_protocol.sasl import choose_login
from trimtab.common.kafka_security import client_config
from trimtab.common.kafka_security.tokens import CachedToken
from trimtab.common.type_vars import ResultT

KeyT = TypeVar("KeyT")
Found: TypeAlias = dict[str, "int | KafkaRequestError"]  # coordinators by group

GROUPS_PER_REQUEST: Final = 100
RETRY_INTERVAL_S: Final = 0.2
MAX_THREADS: Final = 64
LEAST_SHARE_S: Final = 0.5  # of the time, for one of several brokers
_GROUP_KEY: Final = 0
_MOVED_CODES: Final = frozenset({NotCoordinatorError.code, CoordinatorUnavailableError.code})


class Brokers:
    """Connections to the brokers of a cluster, opened when they are used; threads may share them.

    All requests raise KafkaRequestError; `ask…` also for a response with an error code, unless they say so.
    """

    def __init__(self, config: Mapping[str, Any], clock: Clock, *, client_id: str, timeout: float) -> None:
        """`config` holds librdkafka's connection settings, checked by `client_config.check_settings`."""
        self._clock = clock
        self._timeout = timeout
        self._random = Random()  # noqa: S311 - of pauses and of the order of addresses
        self._options = _read_options(config, clock, client_id, timeout)
        self._bootstrap = [Address(*one) for one in client_config.parse_addresses(config)]
        self._last_answered: Address | None = None
        self._lock = Lock()  # of all below
        self._connections: dict[Address, BrokerConnection] = {}
        self._addresses: dict[int, Address] = {}  # by broker id
        self._coordinators: dict[str, int] = {}  # broker ids by group

    def ask(self, api: Api, fields: Mapping[str, Any]) -> Any:
        """Return the response of any broker (rule 1)."""
        return _check(self._ask(api, fields))

    def ask_broker(
        self,
        node: int,
        requests: Sequence[Request],
        timeout: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> list[Any]:
        """Return the responses of a broker, which may have error codes; `is_stopped` ends the wait."""
        if node not in self._addresses:
            self._fetch_nodes()
        address = self._addresses.get(node)
        if address is None:
            raise ConnectionFailedError(f"the cluster has no broker {node} at the moment")
        try:
            return self._connect(address).exchange(requests, timeout, is_stopped)
        except (ConnectionFailedError, RequestTimeoutError):
            with self._lock:  # it may have moved to another address
                self._addresses.pop(node, None)
            raise

    def ask_each(
        self, requests: Mapping[int, Request], timeout: float | None = None
    ) -> tuple[dict[int, Any], dict[int, KafkaRequestError]]:
        """Return the responses by broker, which may have error codes, and the errors without one."""
        results = run_together(
            {node: partial(self._try, node, request, timeout) for node, request in requests.items()}
        )
        errors = {node: one for node, one in results.items() if isinstance(one, KafkaRequestError)}
        return {node: one for node, one in results.items() if node not in errors}, errors

    def ask_all(self, api: Api, fields: Mapping[str, Any]) -> list[Any]:
        """Return the responses of all brokers; one that fails is an error of all."""
        answers, errors = self.ask_each(dict.fromkeys(self._fetch_nodes(), Request(api, fields)))
        for error in errors.values():
            raise error
        return [_check(answer) for answer in answers.values()]

    def ask_coordinator(
        self,
        group: str,
        api: Api,
        fields: Mapping[str, Any],
        *,
        timeout: float | None = None,
        is_stopped: Callable[[], bool] | None = None,
    ) -> Any:
        """Return the response of a group's coordinator; `is_stopped` ends the wait for it."""
        try:
            node = self.find_coordinator(group)
            (answer,) = self.ask_broker(node, [Request(api, fields)], timeout, is_stopped)
        except KafkaRequestError:
            self.forget_coordinators([group])  # rule 2
            raise
        if not _MOVED_CODES.isdisjoint(_list_codes(answer)):
            self.forget_coordinators([group])
        return _check(answer)

    def find_coordinator(self, group: str) -> int:
        """Return the id of the broker that coordinates a group."""
        found = self.find_coordinators([group])[group]
        if isinstance(found, KafkaRequestError):
            raise found
        return found

    def find_coordinators(self, groups: Collection[str]) -> Found:
        """Return the ids of the brokers that coordinate groups, or why one is unknown. Raises nothing."""
        with self._lock:
            found: Found = {g: self._coordinators[g] for g in groups if g in self._coordinators}
        lost = [group for group in groups if group not in found]
        for chunk in cut(lost, GROUPS_PER_REQUEST):
            try:
                rows = self._request_coordinators(chunk)
            except KafkaRequestError as error:
                found |= dict.fromkeys(chunk, error)
                continue
            found |= {group: self._remember(group, rows.get(group)) for group in chunk}
        return found

    def knows_coordinator(self, group: str) -> bool:
        """Return whether `find_coordinators` would ask no broker."""
        return group in self._coordinators

    def forget_coordinators(self, groups: Collection[str]) -> None:
        """Find them anew at the next request."""
        with self._lock:
            for group in groups:
                self._coordinators.pop(group, None)

    def list_groups(self) -> list[Any]:
        """Return the groups of the cluster, as their coordinators list them."""
        return [group for answer in self.ask_all(apis.LIST_GROUPS, {}) for group in answer.groups]

    def fetch_features(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Return first and last version of each feature (KIP-584), "supported" and "finalized"."""
        answer = self.ask(apis.API_VERSIONS, apis.SOFTWARE)
        features: dict[str, dict[str, tuple[int, int]]] = {}
        for one in answer.supported_features or ():
            features.setdefault(one.name, {})["supported"] = (one.min_version, one.max_version)
        for one in answer.finalized_features or ():
            levels = (one.min_version_level, one.max_version_level)
            features.setdefault(one.name, {})["finalized"] = levels
        return features

    def retry(self, request: Callable[[], ResultT]) -> ResultT:
        """Call `request`; after a retryable error again, until the timeout."""
        deadline = self._clock.monotonic() + self._timeout
        while True:
            try:
                return request()
            except KafkaRequestError as error:
                if not error.retryable or self._clock.monotonic() >= deadline:
                    raise
            self._clock.sleep(RETRY_INTERVAL_S)

    def make_connection(self, address: Address) -> BrokerConnection:
        """Return a connection of the caller's own, which is not open yet."""
        return BrokerConnection(address, self._options, self._clock, self._random)

    def close(self) -> None:
        """Close the connections; the next request opens others."""
        with self._lock:
            connections = tuple(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()

    def _ask(self, api: Api, fields: Mapping[str, Any]) -> Any:
        addresses = self._list_addresses()
        deadline = self._clock.monotonic() + self._timeout
        failed: KafkaRequestError | None = None
        for n, address in enumerate(addresses):
            left = deadline - self._clock.monotonic()
            if failed is not None and left <= 0:
                break
            share = max(left / (len(addresses) - n), min(left, LEAST_SHARE_S))
            try:
                (answer,) = self._connect(address).exchange([Request(api, fields)], share)
            except KafkaRequestError as error:
                if not error.retryable:
                    raise
                failed = error
            else:
                self._last_answered = address
                return answer
        raise failed or ConnectionFailedError("no bootstrap address is given")

    def _try(self, node: int, request: Request, timeout: float | None) -> Any:
        try:
            return self.ask_broker(node, [request], timeout)[0]
        except KafkaRequestError as error:
            return error

    def _fetch_nodes(self) -> Collection[int]:
        answer = self.ask(apis.METADATA, {"topics": []})
        found = {b.node_id: Address(b.host, b.port) for b in answer.brokers}
        with self._lock:
            self._addresses |= found
        return found

    def _request_coordinators(self, groups: Sequence[str]) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for group in groups:
            fields = {"key_type": _GROUP_KEY, "key": group, "coordinator_keys": groups}
            answer = self._ask(apis.FIND_COORDINATOR, fields)
            if answer.coordinators is not None:
                return {row.key: row for row in answer.coordinators}
            rows[group] = answer  # before KIP-699 (Kafka 3.0) only of the one key
        return rows

    def _remember(self, group: str, row: Any) -> "int | KafkaRequestError":
        if row is None:
            return CoordinatorUnavailableError("no answer about the group")
        if row.error_code:
            return make_error(row.error_code, row.error_message or "")
        with self._lock:
            self._addresses[row.node_id] = Address(row.host, row.port)
            self._coordinators[group] = row.node_id
        return int(row.node_id)

    def _list_addresses(self) -> list[Address]:
        with self._lock:
            known = list({*self._bootstrap, *self._addresses.values()})
        self._random.shuffle(known)
        return sorted(known, key=lambda address: address != self._last_answered)

    def _connect(self, address: Address) -> BrokerConnection:
        with self._lock:
            if address not in self._connections:
                self._connections[address] = self.make_connection(address)
            return self._connections[address]


def run_together(jobs: Mapping[KeyT, Callable[[], ResultT]]) -> dict[KeyT, ResultT]:
    """Return the results of the jobs, which run at the same time."""
    if len(jobs) <= 1:
        return {key: job() for key, job in jobs.items()}
    with ThreadPoolExecutor(min(MAX_THREADS, len(jobs)), thread_name_prefix="trimtab-broker") as threads:
        running = {key: threads.submit(job) for key, job in jobs.items()}
        return {key: one.result() for key, one in running.items()}


def cut(items: Sequence[str], size: int) -> list[Sequence[str]]:
    """Return the items in parts of this size."""
    return [items[at : at + size] for at in range(0, len(items), size)]


def _read_options(
    config: Mapping[str, Any], clock: Clock, client_id: str, timeout: float
) -> ConnectionOptions:
    protocol = client_config.security_protocol(config)
    context = tls.create_client_context(config) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return ConnectionOptions(client_id, timeout, context)
    callback = client_config.find_token_callback(config)
    oauth_config = str(config.get("sasl.oauthbearer.config", ""))
    token = CachedToken(callback, oauth_config, clock) if callback else None
    mechanism = client_config.sasl_mechanism(config) or ""
    return ConnectionOptions(client_id, timeout, context, mechanism, choose_login(config, token))


def _check(answer: Any) -> Any:
    raise_for_code(getattr(answer, "error_code", 0), getattr(answer, "error_message", ""))
    return answer


def _list_codes(answer: Any) -> set[int]:
    return {getattr(answer, "error_code", 0)} | {g.error_code for g in getattr(answer, "groups", None) or ()}
