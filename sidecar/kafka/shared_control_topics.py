"""The control topics of all groups of a process: one producer, one reader of decisions.

1. Plans are read at most once in a round, for all groups; a group that asks again in the same round gets
   the same answer, or the same error.
2. `refresh_decisions` reads the decision topic from where the last call ended up to its end. Records of
   other groups than the managed ones are skipped by their key.
3. The newest records of each group are kept until its recorder has asked for them, then the last one.
   Samples and seasons are kept as bytes until then, and not at all afterwards.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from threading import Lock
from typing import Final, TypeVar

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient

from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.record_parts import PartAssembler
from trimtab.common.control_topics.write_rates import TopicWriteRates
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.errors import BrokerTimeoutError, NotLeaderError
from trimtab.sidecar.kafka.cluster_client import is_authorization_error
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.kafka.control_topic_tail import ControlTopicTail
from trimtab.sidecar.records.decision_record import DecisionRecord
from trimtab.sidecar.records.sample_record import (
    DECISION_KEY_KIND,
    SAMPLE_KEY_KIND,
    SEASON_KEY_KIND,
    RecordKey,
    SampleRecord,
    read_record_key,
)
from trimtab.sidecar.records.season_record import SEASON_SLOTS, SeasonRecord
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

RESTORED_RECORDS: Final = 24  # of each group, for its page after a restart
RESTORED_BY_KIND: Final = {SAMPLE_KEY_KIND: 12, SEASON_KEY_KIND: SEASON_SLOTS}
ExtraRecordT = TypeVar("ExtraRecordT", SampleRecord, SeasonRecord)


class SharedControlTopics(ControlTopicStore):
    """Reads and writes the control topics of many groups. Thread-safe."""

    def __init__(self, settings: SidecarSettings, admin: AdminClient) -> None:
        """Open the connections; `settings` are those of the process."""
        super().__init__(settings, admin)
        self._producer  # noqa: B018 - made now: threads would make several
        self._reading = Lock()
        self._plans: dict[str, GroupPlan] | BrokerTimeoutError | None = None
        self._tail = ControlTopicTail(settings, settings.decision_topic)
        self._parts = PartAssembler(None)
        self._is_denied = False
        self._outage: BrokerTimeoutError | None = None  # of the last refresh
        self._is_first_read = True
        self._unread: set[str] = set()  # groups of which nothing was read yet
        self._new: dict[str, list[DecisionRecord]] = {}  # of all others, since they asked last
        self._kept: dict[str, deque[DecisionRecord]] = {}
        # samples and seasons by their keys, the newest last
        self._kept_values: dict[RecordKey, dict[str | bytes | None, bytes]] = {}

    def add_group(self, group: str) -> None:
        """Keep the decisions of this group from now on."""
        with self._reading:
            if group not in self._new:
                self._unread.add(group)
                self._kept[group] = deque(maxlen=RESTORED_RECORDS)
                self._kept_values |= {RecordKey(group, kind): {} for kind in RESTORED_BY_KIND}

    def remove_group(self, group: str) -> None:
        """Forget this group."""
        with self._reading:
            self._unread.discard(group)
            self._new.pop(group, None)
            self._kept.pop(group, None)
            for kind in RESTORED_BY_KIND:
                self._kept_values.pop(RecordKey(group, kind), None)

    def begin_round(self) -> None:
        """Forget the plans read in the last round, and read new decisions."""
        with self._reading:
            self._plans = None
        self.refresh_decisions()

    def read_plan_of(self, group: str) -> GroupPlan | None:
        """Return the group's newest plan; None without one. Raises BrokerTimeoutError."""
        with self._reading:
            if self._plans is None:
                self._plans = self._read_plans()
            if isinstance(self._plans, BrokerTimeoutError):
                raise self._plans.with_traceback(None)
            return self._plans.get(group)

    def refresh_decisions(self) -> None:
        """Read the decisions since the last call; an outage is told to each group that asks."""
        with self._reading:
            if self._is_denied:
                return
            try:
                self._read_decisions()
                self._outage = None
            except BrokerTimeoutError as error:
                self._outage = error
                cause = error.__cause__
                if isinstance(cause, KafkaException) and is_authorization_error(cause):
                    # a missing right is not an outage: the sidecar works on, without peer detection
                    self._is_denied, self._outage = True, None
                    log.warning("other sidecars of these groups cannot be detected: %s", error)

    def take_new_decisions(self, group: str) -> tuple[DecisionRecord, ...]:
        """Return the group's decisions since it asked last. Raises BrokerTimeoutError."""
        with self._reading:
            if self._outage is not None:
                raise self._outage.with_traceback(None)
            taken = tuple(self._new.get(group, ()))
            if group in self._new:
                self._new[group] = []
            return taken

    def take_kept_decisions(self, group: str) -> tuple[DecisionRecord, ...]:
        """Return the group's newest decisions, the last one only if it asked before."""
        with self._reading:
            kept = self._kept.get(group, deque())
            records = tuple(sorted({r.number: r for r in kept}.values(), key=lambda r: r.number))
            if records:
                self._kept[group] = deque(records[-1:], maxlen=1)
            return records

    def take_kept_samples(self, group: str) -> tuple[SampleRecord, ...]:
        """Return the group's newest samples; none if it asked before."""
        return self._take_kept(RecordKey(group, SAMPLE_KEY_KIND), SampleRecord.decode)

    def take_kept_seasons(self, group: str) -> tuple[SeasonRecord, ...]:
        """Return the group's seasons; none if it asked before."""
        return self._take_kept(RecordKey(group, SEASON_KEY_KIND), SeasonRecord.decode)

    def _take_kept(self, key: RecordKey, decode: Callable[[bytes], ExtraRecordT]) -> tuple[ExtraRecordT, ...]:
        with self._reading:
            kept = self._kept_values.pop(key, {}).values()
        found = (_try_to_decode(decode, value, key) for value in kept)
        return tuple(record for record in found if record is not None and record.group == key.group)

    def close(self) -> None:
        """Close the connection of the reader."""
        with self._reading:
            self._tail.close()

    def _read_decisions(self) -> None:
        """Raise BrokerTimeoutError."""
        if self._is_first_read:  # the tail reads from the beginning itself
            self._is_first_read = False
            self._new, self._unread = {group: [] for group in self._unread}, set()
        for message in self._tail.read_new():
            self._take_decision(message, self._new.keys())
        if self._unread:
            messages = self._read_messages(self._settings.decision_topic, {})
            earlier = [message for message in messages if _is_of(message, self._unread)]
            added, self._unread = self._unread, set()
            self._new |= {group: [] for group in added}
            for message in earlier:
                self._take_decision(message, added)

    def _read_plans(self) -> dict[str, GroupPlan] | BrokerTimeoutError:
        plans: dict[str, GroupPlan] = {}
        assembler = PartAssembler(None)
        try:
            for message in self._read_messages(self._settings.plan_topic, {}):
                try:
                    value = assembler.add_record(message.value() or b"")
                    plan = GroupPlan.decode(value) if value else None
                except InvalidPayloadError as error:
                    self._log_skipped(message, error)
                    continue
                if plan is not None:
                    plans[plan.group] = plan
        except BrokerTimeoutError as error:
            return error
        return plans

    def _take_decision(self, message: Message, groups: Collection[str]) -> None:
        key = read_record_key(message.key())
        if key is None or key.group not in groups:
            return
        if key.kind != DECISION_KEY_KIND and key not in self._kept_values:
            return
        try:
            value = self._parts.add_record(message.value() or b"")
            if key.kind != DECISION_KEY_KIND:
                self._keep_value(key, message.key(), value)
                return
            record = DecisionRecord.decode(value) if value else None
        except InvalidPayloadError as error:
            self._log_skipped(message, error)
            return
        if record is not None and record.group in groups:
            self._new[record.group].append(record)
            self._kept[record.group].append(record)

    def _keep_value(self, key: RecordKey, name: str | bytes | None, value: bytes | None) -> None:
        kept = self._kept_values[key]
        kept.pop(name, None)
        if value:
            kept[name] = value
        if len(kept) > RESTORED_BY_KIND[key.kind]:
            del kept[next(iter(kept))]


class GroupControlTopics:
    """The shared control topics as one group's `PlanStore`, `DecisionFeed` and `DecisionStore`."""

    def __init__(self, shared: SharedControlTopics, group: str) -> None:
        self._shared = shared
        self._group = group
        self._is_read_in_round = False
        self._is_closed = False
        self._writing = Lock()  # an iteration may outlast its group, which another sidecar manages by then
        shared.add_group(group)

    def begin_round(self) -> None:
        """Use the decisions that were read at the start of the round once."""
        self._is_read_in_round = True

    def read_plan(self) -> GroupPlan | None:
        """Return the group's newest plan; None without one. Raises BrokerTimeoutError."""
        return self._shared.read_plan_of(self._group)

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        """Write and wait for the acknowledgements. Raises BrokerTimeoutError; NotLeaderError once closed."""
        with self._writing:
            if self._is_closed:
                raise NotLeaderError("the group was closed here")
            self._shared.publish(values)

    def read_new_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return the group's decisions since the last call. Raises BrokerTimeoutError."""
        if not self._is_read_in_round:
            self._shared.refresh_decisions()  # before a change the newest ones count
        self._is_read_in_round = False
        return self._shared.take_new_decisions(self._group)

    def read_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return the group's newest decisions, the newest last."""
        return self._shared.take_kept_decisions(self._group)

    def write_decision(self, record: DecisionRecord) -> None:
        """Write a record and wait for the acknowledgement. Raises BrokerTimeoutError."""
        self._shared.write_decision(record)

    def read_samples(self) -> tuple[SampleRecord, ...]:
        """Return the group's newest samples, once."""
        return self._shared.take_kept_samples(self._group)

    def write_sample(self, record: SampleRecord) -> None:
        """Write a sample and wait for the acknowledgement. Raises BrokerTimeoutError."""
        self._shared.write_sample(record)

    def read_seasons(self) -> tuple[SeasonRecord, ...]:
        """Return the group's seasons, once."""
        return self._shared.take_kept_seasons(self._group)

    def write_season(self, record: SeasonRecord) -> None:
        """Write bins of a season and wait for the acknowledgement. Raises BrokerTimeoutError."""
        self._shared.write_season(record)

    def close(self) -> None:
        """Forget the group; nothing is published after this."""
        with self._writing:
            self._is_closed = True
        self._shared.remove_group(self._group)


def _is_of(message: Message, groups: Collection[str]) -> bool:
    key = read_record_key(message.key())
    return key is not None and key.group in groups


def _try_to_decode(
    decode: Callable[[bytes], ExtraRecordT], value: bytes, key: RecordKey
) -> ExtraRecordT | None:
    try:
        return decode(value)
    except InvalidPayloadError as error:
        log.warning("a recorded %s of group %s is skipped: %s", key.kind, key.group, error)
        return None
