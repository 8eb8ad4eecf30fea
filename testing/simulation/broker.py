"""The simulated cluster: the logs of topics, and the coordinator of one consumer group.

The coordinator follows Kafka's `GroupCoordinator` for the classic protocol: its states, the expiry
of members, the response to each request in each state, and the check of member and generation in
a commit. Subscriptions and assignments are opaque bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.testing.simulation.green import Hub

EMPTY: Final = "empty"
PREPARING: Final = "preparing"
COMPLETING: Final = "completing"
STABLE: Final = "stable"

UNKNOWN_MEMBER: Final = "UnknownMemberId"
ILLEGAL_GENERATION: Final = "IllegalGeneration"
REBALANCING: Final = "RebalanceInProgress"
MEMBER_ID_REQUIRED: Final = "MemberIdRequired"

Respond = Callable[["Answer"], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """The coordinator's response: the name of an error, or the requested fields."""

    error: str | None = None
    member: str = ""
    generation: int = -1
    members: Mapping[str, bytes] | None = None  # for the leader only
    assignment: bytes = b""


class Log:
    """Records of all partitions; an aborted one has the next one's number, negative.

    Readers of committed records get no aborted ones. Retention deletes the records below `lows` for
    readers; the checks still see them.
    """

    def __init__(self, *, read_committed: bool = True) -> None:
        self.read_committed = read_committed
        self.records: dict[TopicPartition, dict[int, bytes]] = {}
        self.aborted: dict[TopicPartition, dict[int, bytes]] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.lows: dict[TopicPartition, int] = {}
        self.sorted: dict[TopicPartition, list[int]] = {}
        self.keys: dict[TopicPartition, dict[int, bytes]] = {}  # of records that have one
        self.count = 0

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic this number of partitions; existing ones stay."""
        for number in range(partitions):
            partition = TopicPartition(topic, number)
            self.records.setdefault(partition, {})
            self.aborted.setdefault(partition, {})
            self.sorted.setdefault(partition, [])
            self.ends.setdefault(partition, 0)
            self.lows.setdefault(partition, 0)

    def partitions(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions."""
        return {p.partition for p in self.records if p.topic == topic}

    def expire(self, partition: TopicPartition, before: int) -> None:
        """Delete the records below an offset, as retention does."""
        self.lows[partition] = max(self.lows[partition], min(before, self.ends[partition]))

    def append(self, partition: TopicPartition, *, after_aborted: bool = False) -> None:
        """Add a record with a unique value, after an aborted one or none."""
        self.count += 1
        if after_aborted:
            self._add(partition, b"-%d" % self.count, readable=not self.read_committed)
        self._add(partition, b"%d" % self.count, readable=True)

    def append_record(self, partition: TopicPartition, key: bytes | None, value: bytes) -> None:
        """Add a record with the given key and value."""
        self.count += 1
        if key is not None:
            self.keys.setdefault(partition, {})[self.ends[partition]] = key
        self._add(partition, value, readable=True)

    def _add(self, partition: TopicPartition, value: bytes, *, readable: bool) -> None:
        offset = self.ends[partition]
        if readable:
            self.records[partition][offset] = value
            self.sorted[partition].append(offset)
        else:
            self.aborted[partition][offset] = value
        self.ends[partition] = offset + 1


@dataclass(slots=True)
class SimulatedGroupMember:
    """The coordinator's state of a member."""

    id: str
    client: str
    subscription: bytes
    heard: float
    joining: Respond | None = None
    syncing: Respond | None = None
    assignment: bytes = b""
    watched: bool = False

    @property
    def waits(self) -> bool:
        return self.joining is not None or self.syncing is not None


@dataclass(slots=True)
class Watchers:
    """Listeners to the group's events: the invariants."""

    assigned: Callable[["Group", Mapping[str, bytes]], None] = lambda _group, _given: None
    committed: Callable[[str, TopicPartition, int], None] = lambda _member, _partition, _offset: None
    happened: Callable[[str], None] = lambda _text: None


@dataclass(slots=True)
class Group:
    """The coordinator of one group; times are in seconds."""

    hub: Hub
    session_timeout: float
    rebalance_timeout: float
    watchers: Watchers = field(default_factory=Watchers)
    state: str = EMPTY
    generation: int = 0
    leader: str = ""
    members: dict[str, SimulatedGroupMember] = field(default_factory=dict[str, SimulatedGroupMember])
    pending: set[str] = field(default_factory=set[str])
    offsets: dict[TopicPartition, tuple[int, str]] = field(
        default_factory=dict[TopicPartition, tuple[int, str]]
    )
    _given: int = 0
    _round: int = 0

    # -- requests ---------------------------------------------------------------------------------

    def join(self, member: str, client: str, subscription: bytes, respond: Respond) -> None:
        """Join or rejoin; the response comes when all members have joined, or on timeout."""
        if not member:
            self._given += 1
            name = f"{client}#{self._given}"
            self.pending.add(name)
            respond(Answer(MEMBER_ID_REQUIRED, member=name))
            return
        known = self.members.get(member)
        if known is None and member not in self.pending:
            respond(Answer(UNKNOWN_MEMBER))
            return
        changed = known is None or known.subscription != subscription
        if known is None:
            self.pending.discard(member)
            known = SimulatedGroupMember(member, client, subscription, self.hub.now)
            self.members[member] = known
            self._expire_later(known)
        known.heard = self.hub.now
        if self.state == COMPLETING and not changed:
            respond(self._joined(known))
            return
        if self.state == STABLE and not changed and member != self.leader:
            respond(self._joined(known))
            return
        known.subscription, known.joining = subscription, respond
        self._prepare(f"{client} joins")

    def sync(self, member: str, generation: int, given: Mapping[str, bytes] | None, respond: Respond) -> None:
        """Send the leader's assignments, or request the member's own."""
        known = self.members.get(member)
        error = self._wrong(known, generation)
        if known is None or error is not None:
            respond(Answer(error))
        elif self.state == PREPARING:
            respond(Answer(REBALANCING))
        elif self.state == STABLE:
            known.heard = self.hub.now
            respond(Answer(assignment=known.assignment))
        else:
            known.heard = self.hub.now
            known.syncing = respond
            if member == self.leader and given is not None:
                self._assign(given)

    def heartbeat(self, member: str, generation: int, respond: Respond) -> None:
        """Extend the session of a member."""
        known = self.members.get(member)
        error = self._wrong(known, generation)
        if known is None or error is not None:
            respond(Answer(error))
            return
        known.heard = self.hub.now
        respond(Answer(REBALANCING if self.state == PREPARING else None))

    def leave(self, member: str, respond: Respond) -> None:
        """Remove a member."""
        self.pending.discard(member)
        if member not in self.members:
            respond(Answer(UNKNOWN_MEMBER))
            return
        self._remove(self.members[member], "leaves")
        respond(Answer())

    def commit(
        self,
        member: str,
        generation: int,
        offsets: Mapping[TopicPartition, tuple[int, str]],
        respond: Respond,
    ) -> None:
        """Accept offsets, only from a member of the current generation."""
        known = self.members.get(member)
        error = self._wrong(known, generation)
        if error is None and self.state == COMPLETING:
            error = REBALANCING
        if known is None or error is not None:
            respond(Answer(error))
            return
        known.heard = self.hub.now
        self.store(member, offsets, respond)

    def store(self, member: str, offsets: Mapping[TopicPartition, tuple[int, str]], respond: Respond) -> None:
        """Accept offsets without a check, as from a consumer without a group."""
        for partition, (offset, _) in sorted(offsets.items()):
            self.watchers.committed(member, partition, offset)
        self.offsets.update(offsets)
        respond(Answer())

    # -- inside -----------------------------------------------------------------------------------

    def _wrong(self, known: SimulatedGroupMember | None, generation: int) -> str | None:
        if known is None:
            return UNKNOWN_MEMBER
        return None if generation == self.generation else ILLEGAL_GENERATION

    def _joined(self, known: SimulatedGroupMember) -> Answer:
        leads = known.id == self.leader
        members = {m.id: m.subscription for m in self.members.values()} if leads else None
        return Answer(None, known.id, self.generation, members)

    def _prepare(self, why: str) -> None:
        if self.state != PREPARING:
            self.watchers.happened(f"rebalance: {why}")
            if self.state == COMPLETING:
                for member in self.members.values():
                    self._answer_sync(member, Answer(REBALANCING))
            self.state = PREPARING
            self._round += 1
            number = self._round
            self.hub.at(self.rebalance_timeout, lambda: self._overdue(number))
        self._try_complete()

    def _overdue(self, number: int) -> None:
        """Continue without the members that did not join in time."""
        if self.state != PREPARING or number != self._round:
            return
        for member in [m for m in self.members.values() if m.joining is None]:
            self.watchers.happened(f"{member.id} did not join in time")
            del self.members[member.id]
        self._try_complete()

    def _try_complete(self) -> None:
        if any(member.joining is None for member in self.members.values()):
            return
        self.generation += 1
        self._round += 1
        if not self.members:
            self.state = EMPTY
            return
        self.state = COMPLETING
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        number = self._round
        for member in list(self.members.values()):
            respond, member.joining = member.joining, None
            member.heard = self.hub.now
            self._expire_later(member)
            assert respond is not None
            respond(self._joined(member))
        self.hub.at(self.rebalance_timeout, lambda: self._never_synced(number))

    def _never_synced(self, number: int) -> None:
        if self.state != COMPLETING or number != self._round:
            return
        for member in [m for m in self.members.values() if m.syncing is None]:
            if member.id in self.members:
                self._remove(member, "did not sync in time")

    def _assign(self, given: Mapping[str, bytes]) -> None:
        self.state = STABLE
        self.watchers.assigned(self, given)
        for member in list(self.members.values()):
            member.assignment = given.get(member.id, b"")
            self._answer_sync(member, Answer(assignment=member.assignment))

    def _answer_sync(self, member: SimulatedGroupMember, answer: Answer) -> None:
        respond, member.syncing = member.syncing, None
        if respond is not None:
            member.heard = self.hub.now
            self._expire_later(member)
            respond(answer)

    def _expire_later(self, member: SimulatedGroupMember) -> None:
        """Check again when the member's session may have expired."""
        if member.watched:
            return
        member.watched = True
        left = member.heard + self.session_timeout - self.hub.now
        self.hub.at(max(0.0, left) + 1e-6, lambda: self._expire(member))

    def _expire(self, member: SimulatedGroupMember) -> None:
        member.watched = False
        if self.members.get(member.id) is not member or member.waits:
            return  # a member that waits for a response does not expire
        if self.hub.now - member.heard >= self.session_timeout:
            self._remove(member, "was silent for a session timeout")
        else:
            self._expire_later(member)

    def _remove(self, member: SimulatedGroupMember, why: str) -> None:
        del self.members[member.id]
        for respond in (member.joining, member.syncing):
            if respond is not None:
                respond(Answer(UNKNOWN_MEMBER))
        if self.state == PREPARING:
            self._try_complete()
        else:
            self._prepare(f"{member.id} {why}")

    def described(self) -> list[tuple[Any, ...]]:
        """Return (id, client, assignment) of each member; assignments only in a stable group."""
        stable = self.state == STABLE
        return [(m.id, m.client, m.assignment if stable else b"") for m in self.members.values()]
