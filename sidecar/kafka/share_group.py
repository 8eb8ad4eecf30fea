"""Members of a share group, and its lag by partition."""

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SettingError, ShareGroupsUnsupportedError
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.errors import KafkaRequestError, raise_for_code
from trimtab.common.share_group_support import explain_missing_share_groups
from trimtab.common.type_vars import ResultT
from trimtab.sidecar.errors import GroupTypeMismatchError
from trimtab.sidecar.kafka.broker_client import GROUP_STATE_BY_NAME, GroupCommits
from trimtab.sidecar.kafka.brokers import connect_brokers, describe_group, fetch_group_type
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")
SHARE_GROUP_TYPE: Final = "share"


class ShareGroupClient:
    """Client of one share group; an unreachable broker is reported as an error.

    Raises ShareGroupsUnsupportedError and GroupTypeMismatchError if a broker responds.
    """

    def __init__(self, settings: SidecarSettings, clock: Clock) -> None:
        self._settings = settings
        self._group = settings.group
        self._brokers = connect_brokers(settings, clock)
        self._group_type_checked = False
        try:
            self._brokers.retry(self._check_group_type)
        except KafkaRequestError as error:
            # checked again before each request; until then the group is unknown, so nothing is stopped
            log.debug("the type of group %s is not known yet: %s", self._group, error)
        except SettingError:
            self.close()
            raise

    def describe_group(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Return the group and errors; the group is unknown after a failure."""
        try:
            described = self._retry(
                lambda: describe_group(self._brokers, self._group, apis.SHARE_GROUP_DESCRIBE)
            )
        except (KafkaRequestError, SettingError) as error:
            return ObservedGroup(is_share_group=True), (self._format_error(error),)
        if described is None:
            return ObservedGroup(GroupState.EMPTY, is_share_group=True), ()
        state = GROUP_STATE_BY_NAME.get(described.group_state, GroupState.UNKNOWN)
        members = (ObservedMember(m.member_id, m.client_id) for m in described.members)
        return ObservedGroup(state, tuple(sorted(members, key=lambda m: m.id)), is_share_group=True), ()

    def fetch_group_commits(self) -> GroupCommits:
        """Return the lags, and the start offsets for partitions without one."""
        try:
            described = self._retry(self._describe_offsets)
        except (KafkaRequestError, SettingError) as error:
            return GroupCommits(is_known=False, errors=(self._format_error(error),))
        offsets = {
            TopicPartition(topic.topic_name, p.partition_index): p
            for topic in described.topics
            for p in topic.partitions
            if p.start_offset >= 0
        }
        # The lag (KIP-1226) counts waiting and in-flight records. A partition without any acknowledged
        # record has none: its backlog begins at the group's start offset, as offset-reset sets it.
        return GroupCommits(
            offsets={partition: p.start_offset for partition, p in offsets.items()},
            lags={partition: p.lag for partition, p in offsets.items() if p.lag >= 0},
        )

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._brokers.close()

    def _describe_offsets(self) -> Any:
        """Return `topics` with the start offset and lag of each partition, -1 if unknown."""
        wanted = {"groups": [{"group_id": self._group, "topics": None}]}  # None: all topics
        (described,) = self._brokers.ask_coordinator(
            self._group, apis.DESCRIBE_SHARE_GROUP_OFFSETS, wanted
        ).groups
        raise_for_code(described.error_code, described.error_message)
        for topic in described.topics:
            for p in topic.partitions:
                # without the failed partition the others would look like the whole backlog
                text = filter(None, (f"{topic.topic_name}-{p.partition_index}", p.error_message))
                raise_for_code(p.error_code, ": ".join(text))
        return described

    def _retry(self, request: Callable[[], ResultT]) -> ResultT:
        """Raise KafkaRequestError, ShareGroupsUnsupportedError, GroupTypeMismatchError."""

        def check_and_request() -> ResultT:
            self._check_group_type()
            return request()

        return self._brokers.retry(check_and_request)

    def _check_group_type(self) -> None:
        if self._group_type_checked:
            return
        features = self._brokers.fetch_features()
        reason = explain_missing_share_groups(features, self._settings.bootstrap)
        if reason is not None:
            raise ShareGroupsUnsupportedError(reason)
        group_type = fetch_group_type(self._brokers, self._group)
        if group_type not in {SHARE_GROUP_TYPE, None}:  # None: no worker has joined yet
            raise GroupTypeMismatchError(
                f"group {self._group!r} is a {group_type} group, not a share group: leave out "
                "queue=share, or give the name of the workers' share group"
            )
        self._group_type_checked = True

    def _format_error(self, error: KafkaRequestError | SettingError) -> str:
        if isinstance(error, SettingError):
            return str(error)
        return f"share group {self._group}: {str(error) or type(error).__name__}"


def refuse_share_group(settings: SidecarSettings) -> None:
    """Raise GroupTypeMismatchError for a share group; return if no broker responds."""
    # read as a consumer group, a share group would look empty
    try:
        with closing(connect_brokers(settings, SystemClock())) as brokers:
            group_type = fetch_group_type(brokers, settings.group)
    except KafkaRequestError as error:
        log.debug("the type of group %s is not known: %s", settings.group, error)
        return
    if group_type == SHARE_GROUP_TYPE:
        raise GroupTypeMismatchError(
            f"group {settings.group!r} is a share group: write queue=share (--queue share), or "
            "give the name of a consumer group"
        )
