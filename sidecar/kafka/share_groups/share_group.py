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
from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection
from trimtab.common.share_group_support import lacking
from trimtab.sidecar.errors import NoShareGroups, WrongGroup
from trimtab.sidecar.kafka.broker_client import PAUSE, STATES, Commits
from trimtab.sidecar.kafka.share_groups import protocol
from trimtab.sidecar.measurement.observation import GroupState, GroupView, Reader
from trimtab.sidecar.settings.settings import Settings

log = logging.getLogger("trimtab.sidecar")

T = TypeVar("T")
_ADMIN: Any = KafkaAdminClient  # its methods come from mix-ins that checkers do not see
SHARE: Final = "share"


class ShareGroup:
    """One share group; never raises because a broker is away.

    Making it raises NoShareGroups and WrongGroup, of brokers that answer. Where none does, nothing
    is known of the group until one has answered, and these two are told as trouble.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._group = settings.group
        self._clock = clock
        self._client: Any = None
        self._checked = False
        try:
            self._settled(self._check)
        except KafkaError as error:
            log.debug("the kind of group %s is not known yet: %s", self._group, error)
        except SettingError:
            self.close()
            raise

    def group(self) -> tuple[GroupView, tuple[str, ...]]:
        """Return the group as its coordinator describes it, and what was wrong."""
        try:
            told = self._settled(lambda client: protocol.described(client, self._group))
        except (KafkaError, SettingError) as error:
            return GroupView(shared=True), (self._said(error),)
        if told is None:
            return GroupView(GroupState.EMPTY, shared=True), ()
        state = STATES.get(told.state, GroupState.UNKNOWN)
        readers = sorted((Reader(m.id, m.client) for m in told.members), key=lambda r: r.id)
        return GroupView(state, tuple(readers), shared=True), ()

    def commits(self) -> Commits:
        """Return how far the group is: its lags, else where it starts."""
        try:
            told = self._settled(lambda client: protocol.offsets(client, self._group))
        except (KafkaError, SettingError) as error:
            return Commits(known=False, trouble=(self._said(error),))
        found = {
            TopicPartition(topic.topic, p.number): p
            for topic in told.topics
            for p in topic.partitions
            if p.start >= 0
        }
        return Commits(
            offsets={p: at.start for p, at in found.items()},
            lags={p: at.lag for p, at in found.items() if at.lag >= 0},
        )

    def close(self) -> None:
        """Let the connection go."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _settled(self, ask: Callable[[Any], T]) -> T:
        """Ask, by a new connection after a failure that passes; of no group of another kind.

        Raises KafkaError, NoShareGroups, WrongGroup.
        """
        deadline = self._clock.monotonic() + self._settings.timeout
        while True:
            try:
                if self._client is None:
                    self._client = _connected(self._settings)
                self._check(self._client)
                return ask(self._client)
            except KafkaError as error:
                self.close()
                if not error.retriable or self._clock.monotonic() >= deadline:
                    raise
            self._clock.sleep(PAUSE)

    def _check(self, client: Any) -> None:
        """See once that it is a share group, or none yet."""
        if self._checked:
            return
        features: Mapping[str, Mapping[str, Any]] = client.describe_features()
        reason = lacking(features, self._settings.bootstrap)
        if reason is not None:
            raise NoShareGroups(reason)
        kind = _kind(client, self._group)
        if kind not in {SHARE, None}:
            raise WrongGroup(
                f"group {self._group!r} is a {kind} group, not a share group: leave out "
                "queue=share, or give the name of the workers' share group"
            )
        self._checked = True

    def _said(self, error: KafkaError | SettingError) -> str:
        if isinstance(error, SettingError):
            return str(error)
        return f"share group {self._group}: {str(error) or type(error).__name__}"


def refuse_share_group(settings: Settings) -> None:
    """Raise WrongGroup for a share group: without queue=share nothing in it would be seen.

    Silent where no broker answers: it is not known then.
    """
    try:
        client = _connected(settings)
        try:
            kind = _kind(client, settings.group)
        finally:
            client.close()
    except KafkaError as error:
        log.debug("the kind of group %s is not known: %s", settings.group, error)
        return
    if kind == SHARE:
        raise WrongGroup(
            f"group {settings.group!r} is a share group: write queue=share (--queue share), or "
            "give the name of a consumer group"
        )


def _connected(settings: Settings) -> Any:
    milliseconds = round(settings.timeout * 1000)
    return _ADMIN(
        **connection.for_kafka_python(settings.client),
        bootstrap_servers=settings.bootstrap.split(","),
        client_id="trimtab-sidecar",
        request_timeout_ms=milliseconds,
        bootstrap_timeout_ms=milliseconds,
    )


def _kind(client: Any, group: str) -> str | None:
    """Return the kind of a group as brokers call it, None where there is no such group."""
    return {g["group_id"]: g.get("group_type") for g in client.list_groups()}.get(group)
