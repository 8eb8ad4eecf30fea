"""A share group as the sidecar looks at it: members, and the broker's own lag by partition.

The lag (KIP-1226) leaves out only what is finished: what waits and what is in work count. A
partition of which nothing has been settled yet has none; then it is what lies behind the group's
start, as of any group that has not committed: all of it, or nothing, as `offset-reset` says.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.errors import SettingError, ShareGroupsUnsupportedError
from trimtab.common.kafka_security import connection
from trimtab.common.share_group_support import explain_missing_share_groups
from trimtab.sidecar.errors import GroupTypeMismatchError
from trimtab.sidecar.kafka.broker_client import (
    COORDINATOR_RETRY_INTERVAL_S,
    GROUP_STATE_BY_NAME,
    GroupCommits,
)
from trimtab.sidecar.kafka.share_groups import protocol
from trimtab.sidecar.measurement.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

T = TypeVar("T")
_UNTYPED_ADMIN_CLIENT: Any = KafkaAdminClient  # its methods come from mix-ins that checkers do not see
SHARE_GROUP_TYPE: Final = "share"


class ShareGroupClient:
    """One share group; never raises because a broker is away.

    Making it raises ShareGroupsUnsupportedError and GroupTypeMismatchError, of brokers that answer.
    Where none does, nothing is known of the group until one has answered, and these two are told as
    trouble.
    """

    def __init__(self, settings: SidecarSettings, clock: Clock) -> None:
        self._settings = settings
        self._group = settings.group
        self._clock = clock
        self._client: Any = None
        self._group_type_checked = False
        try:
            self._request_with_retry(self._check_group_type)
        except KafkaError as error:
            log.debug("the kind of group %s is not known yet: %s", self._group, error)
        except SettingError:
            self.close()
            raise

    def describe_group(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Return the group as its coordinator describes it, and what was wrong."""
        try:
            told = self._request_with_retry(lambda client: protocol.describe_share_group(client, self._group))
        except (KafkaError, SettingError) as error:
            return ObservedGroup(is_share_group=True), (self._format_error(error),)
        if told is None:
            return ObservedGroup(GroupState.EMPTY, is_share_group=True), ()
        state = GROUP_STATE_BY_NAME.get(told.state, GroupState.UNKNOWN)
        readers = sorted((ObservedMember(m.id, m.client) for m in told.members), key=lambda r: r.id)
        return ObservedGroup(state, tuple(readers), is_share_group=True), ()

    def fetch_group_commits(self) -> GroupCommits:
        """Return how far the group is: its lags, else where it starts."""
        try:
            told = self._request_with_retry(
                lambda client: protocol.describe_share_group_offsets(client, self._group)
            )
        except (KafkaError, SettingError) as error:
            return GroupCommits(is_known=False, trouble=(self._format_error(error),))
        found = {
            TopicPartition(topic.topic, p.number): p
            for topic in told.topics
            for p in topic.partitions
            if p.start >= 0
        }
        return GroupCommits(
            offsets={p: at.start for p, at in found.items()},
            lags={p: at.lag for p, at in found.items() if at.lag >= 0},
        )

    def close(self) -> None:
        """Let the connection go."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _request_with_retry(self, request: Callable[[Any], T]) -> T:
        """Ask, by a new connection after a failure that passes; of no group of another kind.

        Raises KafkaError, ShareGroupsUnsupportedError, GroupTypeMismatchError.
        """
        deadline = self._clock.monotonic() + self._settings.timeout
        while True:
            try:
                if self._client is None:
                    self._client = _connect_admin_client(self._settings)
                self._check_group_type(self._client)
                return request(self._client)
            except KafkaError as error:
                self.close()
                if not error.retriable or self._clock.monotonic() >= deadline:
                    raise
            self._clock.sleep(COORDINATOR_RETRY_INTERVAL_S)

    def _check_group_type(self, client: Any) -> None:
        """See once that it is a share group, or none yet."""
        if self._group_type_checked:
            return
        features: Mapping[str, Mapping[str, Any]] = client.describe_features()
        reason = explain_missing_share_groups(features, self._settings.bootstrap)
        if reason is not None:
            raise ShareGroupsUnsupportedError(reason)
        kind = _fetch_group_type(client, self._group)
        if kind not in {SHARE_GROUP_TYPE, None}:
            raise GroupTypeMismatchError(
                f"group {self._group!r} is a {kind} group, not a share group: leave out "
                "queue=share, or give the name of the workers' share group"
            )
        self._group_type_checked = True

    def _format_error(self, error: KafkaError | SettingError) -> str:
        if isinstance(error, SettingError):
            return str(error)
        return f"share group {self._group}: {str(error) or type(error).__name__}"


def refuse_share_group(settings: SidecarSettings) -> None:
    """Raise GroupTypeMismatchError for a share group.

    Without queue=share nothing in it would be seen.

    Silent where no broker answers: it is not known then.
    """
    try:
        client = _connect_admin_client(settings)
        try:
            kind = _fetch_group_type(client, settings.group)
        finally:
            client.close()
    except KafkaError as error:
        log.debug("the kind of group %s is not known: %s", settings.group, error)
        return
    if kind == SHARE_GROUP_TYPE:
        raise GroupTypeMismatchError(
            f"group {settings.group!r} is a share group: write queue=share (--queue share), or "
            "give the name of a consumer group"
        )


def _connect_admin_client(settings: SidecarSettings) -> Any:
    milliseconds = round(settings.timeout * 1000)
    return _UNTYPED_ADMIN_CLIENT(
        **connection.to_kafka_python_config(settings.client_config),
        bootstrap_servers=settings.bootstrap.split(","),
        client_id="trimtab-sidecar",
        request_timeout_ms=milliseconds,
        bootstrap_timeout_ms=milliseconds,
    )


def _fetch_group_type(client: Any, group: str) -> str | None:
    """Return the kind of a group as brokers call it, None where there is no such group."""
    return {g["group_id"]: g.get("group_type") for g in client.list_groups()}.get(group)
