"""A share group as the sidecar looks at it: members, and the broker's own lag by partition.

The lag (KIP-1226) leaves out only what is finished: what waits and what is in work count. A
partition of which nothing has been settled yet has none; then it is what lies behind the group's
start, as of any group that has not committed: all of it, or nothing, as `offset-reset` says.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from trimtab.assignor.clock import Clock
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.security import connection
from trimtab.assignor.share_groups import lacking
from trimtab.sidecar.brokers import PAUSE, STATES, Commits
from trimtab.sidecar.errors import NoShareGroups, WrongGroup
from trimtab.sidecar.observation import GroupState, GroupView, Reader
from trimtab.sidecar.settings import Settings
from trimtab.sidecar.shares import wire

T = TypeVar("T")
_ADMIN: Any = KafkaAdminClient  # its methods come from mix-ins that checkers do not see
SHARE: Final = "share"


class ShareGroup:
    """One share group; never raises because a broker is away.

    Making it raises NoShareGroups and WrongGroup, of brokers that answer.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._group = settings.group
        self._bootstrap = settings.bootstrap
        self._timeout = settings.timeout
        self._config = settings.client
        self._clock = clock
        self._client: Any = None
        try:
            self._settled(self._check)
        except KafkaError:
            self.close()  # the first turn tells what is wrong

    def group(self) -> tuple[GroupView, tuple[str, ...]]:
        """Return the group as its coordinator describes it, and what was wrong."""
        try:
            told = self._settled(lambda client: wire.described(client, self._group))
        except KafkaError as error:
            return GroupView(shared=True), (self._said(error),)
        if told is None:
            return GroupView(GroupState.EMPTY, shared=True), ()
        state = STATES.get(told.state, GroupState.UNKNOWN)
        readers = sorted((Reader(m.id, m.client) for m in told.members), key=lambda r: r.id)
        return GroupView(state, tuple(readers), shared=True), ()

    def commits(self) -> Commits:
        """Return how far the group is: its lags, else where it starts."""
        try:
            told = self._settled(lambda client: wire.offsets(client, self._group))
        except KafkaError as error:
            return Commits(known=False, trouble=(self._said(error),))
        found = {
            TopicPartition(topic.topic, p.number): p
            for topic in told.topics
            for p in topic.partitions
            if not p.error_code and p.start >= 0
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
        """Ask, by a new connection after a failure that passes. Raises KafkaError."""
        deadline = self._clock.monotonic() + self._timeout
        while True:
            try:
                return ask(self._connected())
            except KafkaError as error:
                self.close()
                if not error.retriable or self._clock.monotonic() >= deadline:
                    raise
            self._clock.sleep(PAUSE)

    def _connected(self) -> Any:
        if self._client is None:
            milliseconds = round(self._timeout * 1000)
            self._client = _ADMIN(
                **connection.for_kafka_python(self._config),
                bootstrap_servers=self._bootstrap.split(","),
                client_id="trimtab-sidecar",
                request_timeout_ms=milliseconds,
                bootstrap_timeout_ms=milliseconds,
            )
        return self._client

    def _check(self, client: Any) -> None:
        features: Mapping[str, Mapping[str, Any]] = client.describe_features()
        reason = lacking(features, self._bootstrap)
        if reason is not None:
            raise NoShareGroups(reason)
        kinds = {g["group_id"]: g.get("group_type") for g in client.list_groups()}
        kind = kinds.get(self._group, SHARE)
        if kind != SHARE:
            raise WrongGroup(
                f"group {self._group!r} is a {kind} group, not a share group: leave out "
                "queue=share, or give the name of the workers' share group"
            )

    def _said(self, error: KafkaError) -> str:
        return f"share group {self._group}: {str(error) or type(error).__name__}"
