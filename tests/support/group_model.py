"""A model of the broker's group coordinator, and members that talk to it, in virtual time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

from trimtab.assignor.rebalance.user_data import group_by_topic
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.fields import Reader, compile_table
from trimtab.consumer_sdk.membership.machine.assignments import ASSIGNMENT_TABLE
from trimtab.consumer_sdk.membership.machine.classic_member import ClassicMember
from trimtab.consumer_sdk.membership.machine.values import (
    Assigned,
    LeadRequested,
    Lost,
    MemberOptions,
    MemberRequest,
    Revoked,
)

TOPIC = "t"
STEP_S = 0.05
CLAIM_TABLE = "owned:[topic:string partitions:[int32]] generation:int32"


def answer(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


def write(table: str, fields: Mapping[str, Any]) -> bytes:
    out = bytearray()
    compile_table(table, 0, flexible=False)[1](out, fields)
    return bytes(out)


def rows(partitions: frozenset[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": t, "partitions": list(numbers)} for t, numbers in group_by_topic(partitions)]


def encode_assignment(partitions: frozenset[TopicPartition], user_data: bytes | None = None) -> bytes:
    table = ASSIGNMENT_TABLE
    return write(table, {"version": 1, "assigned": rows(partitions), "user_data": user_data})


def describe(owned: frozenset[TopicPartition], generation: int, _topics: object) -> list[tuple[str, bytes]]:
    return [("trimtab", write(CLAIM_TABLE, {"owned": rows(owned), "generation": generation}))]


def decide(members: Mapping[str, bytes], count: int, topic: str = TOPIC) -> dict[str, bytes]:
    """Return assignments of a cooperative leader: in turn, and what another one claims stays there."""
    read = compile_table(CLAIM_TABLE, 0, flexible=False)[0]
    claims = {m: read(Reader(data)).owned for m, data in sorted(members.items())}
    claimed = {
        TopicPartition(topic, n): m for m, own in claims.items() for row in own for n in row.partitions
    }
    names = sorted(members)
    target = {TopicPartition(topic, n): names[n % len(names)] for n in range(count)}
    return {
        m: encode_assignment(frozenset(p for p, to in target.items() if to == m and claimed.get(p, m) == m))
        for m in names
    }


@dataclass
class Known:
    """A member, as the coordinator knows it."""

    id: str
    instance: str | None
    metadata: bytes
    heard: float
    joins: Callable[[Any], None] | None = None
    syncs: Callable[[Any], None] | None = None
    assignment: bytes = b""


@dataclass
class GroupModel:
    """The coordinator of one group; `answer` functions are called when it responds."""

    session: float = 6.0
    rebalance: float = 20.0
    partitions: int = 4
    state: str = "empty"
    generation: int = 0
    leader: str = ""
    members: dict[str, Known] = field(default_factory=dict[str, Known])
    offsets: dict[TopicPartition, tuple[int, str, int]] = field(
        default_factory=dict[TopicPartition, tuple[int, str, int]]
    )
    given: int = 0
    began: float = 0.0
    moved: bool = False

    def handle(self, request: MemberRequest, now: float, respond: Callable[[Any], None]) -> None:
        fields = request.fields
        if request.api is apis.FIND_COORDINATOR:
            self.moved = False
            respond(answer(coordinators=[answer(error_code=0, host="b", port=1)]))
        elif request.api is apis.METADATA:
            topics = [answer(name=TOPIC, error_code=0, is_internal=False, partitions=self.list_partitions())]
            respond(answer(brokers=[], topics=topics))
        elif self.moved:
            respond(self.fail(request, 16))
        elif request.api is apis.JOIN_GROUP:
            self.join(fields, now, respond)
        elif (code := self.check(fields, request)) and request.api is not apis.LEAVE_GROUP:
            respond(self.fail(request, code))
        else:
            self.handle_known(request, now, respond)

    def handle_known(self, request: MemberRequest, now: float, respond: Callable[[Any], None]) -> None:
        fields = request.fields
        if request.api is apis.LEAVE_GROUP:
            self.remove(fields["members"][0]["member_id"], now)
            respond(answer(error_code=0, members=[]))
            return
        if request.api is apis.OFFSET_FETCH:
            respond(answer(groups=[answer(error_code=0, topics=[])]))
            return
        known = self.members[fields["member_id"]]
        known.heard = now
        if request.api is apis.SYNC_GROUP:
            known.syncs = respond
            self.sync(known, fields)
        elif request.api is apis.HEARTBEAT:
            respond(answer(error_code=27 if self.state == "preparing" else 0))
        elif self.state == "completing":
            respond(self.fail(request, 27))
        else:
            self.commit(request, respond)

    def list_partitions(self) -> list[Any]:
        return [answer(partition_index=n) for n in range(self.partitions)]

    def check(self, fields: Mapping[str, Any], request: MemberRequest) -> int:
        if request.api is apis.OFFSET_FETCH:
            return 0
        known = self.members.get(fields.get("member_id", ""))
        if known is None:
            return 25
        generation = fields.get("generation_id", fields.get("generation_id_or_member_epoch"))
        if generation != self.generation:
            return 22
        return 27 if request.api is apis.SYNC_GROUP and self.state == "preparing" else 0

    def fail(self, request: MemberRequest, code: int) -> Any:
        if request.api is apis.OFFSET_COMMIT:
            return answer(
                topics=[
                    answer(
                        name=t["name"],
                        partitions=[
                            answer(partition_index=p["partition_index"], error_code=code)
                            for p in t["partitions"]
                        ],
                    )
                    for t in request.fields["topics"]
                ]
            )
        return answer(error_code=code, member_id="", members=[], protocol_name=None, groups=None)

    def join(self, fields: Mapping[str, Any], now: float, respond: Callable[[Any], None]) -> None:
        member, instance = fields["member_id"], fields["group_instance_id"]
        if not member:
            self.given += 1
            member = f"m{self.given}"
            if instance is None:
                self.members[member] = Known(member, None, b"", now)
                respond(answer(error_code=79, member_id=member))
                return
        elif member not in self.members:
            respond(answer(error_code=25, member_id=""))
            return
        known = self.members.setdefault(member, Known(member, instance, b"", now))
        known.metadata, known.heard, known.joins = fields["protocols"][0]["metadata"], now, respond
        self.prepare(now)

    def prepare(self, now: float) -> None:
        for known in self.members.values():
            if known.syncs is not None:
                known.syncs(answer(error_code=27, protocol_name=None))
                known.syncs = None
        if self.state != "preparing":
            self.state, self.began = "preparing", now
        self.complete(now)

    def complete(self, now: float) -> None:
        if not self.members:
            self.state = "empty"
            return
        is_late = now - self.began >= self.rebalance
        if not is_late and any(one.joins is None for one in self.members.values()):
            return
        for one in [one for one in self.members.values() if one.joins is None]:
            del self.members[one.id]
        self.generation += 1
        self.state = "completing"
        self.leader = min(self.members, default="")
        for one in self.members.values():
            is_leader = one.id == self.leader
            members = [answer(member_id=m.id, metadata=m.metadata) for m in self.members.values()]
            response = answer(
                error_code=0, protocol_type=None, protocol_name="trimtab", generation_id=self.generation
            )
            response.leader, response.member_id = self.leader, one.id
            response.members, response.skip_assignment = members if is_leader else [], False
            assert one.joins is not None
            one.joins(response)
            one.joins, one.heard = None, now

    def sync(self, known: Known, fields: Mapping[str, Any]) -> None:
        if known.id == self.leader and self.state == "completing":
            given = {row["member_id"]: row["assignment"] for row in fields["assignments"]}
            for one in self.members.values():
                one.assignment = given.get(one.id, b"")
            self.state = "stable"
        if self.state == "stable":
            for one in self.members.values():
                if one.syncs is not None:
                    one.syncs(answer(error_code=0, protocol_name="trimtab", assignment=one.assignment))
                    one.syncs = None

    def commit(self, request: MemberRequest, respond: Callable[[Any], None]) -> None:
        for topic in request.fields["topics"]:
            for row in topic["partitions"]:
                at = row["committed_offset"], request.fields["member_id"], self.generation
                self.offsets[TopicPartition(topic["name"], row["partition_index"])] = at
        respond(self.fail(request, 0))

    def remove(self, member: str, now: float) -> None:
        if self.members.pop(member, None) is not None:
            self.prepare(now)

    def tick(self, now: float) -> None:
        """Remove silent members, and end a rebalance that is overdue."""
        waiting = [m for m in self.members.values() if m.joins is None and m.syncs is None]
        for one in [m for m in waiting if now - m.heard >= self.session]:
            self.remove(one.id, now)
        if self.state == "preparing":
            self.complete(now)


class Client:
    """A member and its application: it releases at once unless `holds` is set."""

    def __init__(self, model: GroupModel, now: float, **options: Any) -> None:
        self.model = model
        self.options = MemberOptions(
            "g", "trimtab", **{"session_timeout": 6.0, "rebalance_timeout": 20.0} | options
        )
        self.member = ClassicMember(self.options, describe, Random(7), now)  # noqa: S311 - of pauses
        self.member.subscribe([TOPIC], now)
        self.events: list[Any] = []
        self.requests: list[MemberRequest] = []
        self.reads: frozenset[TopicPartition] = frozenset()
        self.holds = self.is_cut = self.is_dead = False
        self.pending: list[tuple[MemberRequest, Any]] = []

    def run(self, now: float) -> bool:
        """Do what is due now; return whether anything happened."""
        if self.is_dead:
            return False
        did = False
        for request, response in self.take_pending():
            self.member.on_response(request, response, now)
            did = True
        did |= self.take_events(now)
        while (request := self.member.next_request(now)) is not None:
            did = True
            self.requests.append(request)
            if not self.is_cut:
                self.model.handle(request, now, lambda given, of=request: self.pending.append((of, given)))
            self.take_events(now)
        return did | self.take_events(now)

    def take_pending(self) -> list[tuple[MemberRequest, Any]]:
        taken, self.pending = self.pending, []
        return [] if self.is_cut else taken

    def take_events(self, now: float) -> bool:
        events = self.member.take_events()
        for event in events:
            self.events.append(event)
            if isinstance(event, LeadRequested):
                count = len(self.member.topics.partitions.get(TOPIC, ()))
                self.member.assign(decide(event.members, count), [TOPIC], now)
            elif isinstance(event, Assigned):
                self.reads |= event.partitions
            elif isinstance(event, Lost):
                self.reads -= event.partitions
            elif isinstance(event, Revoked) and not self.holds:
                self.reads -= event.partitions
                self.member.release(now)
        return bool(events)

    def sent(self, api: Any) -> list[MemberRequest]:
        return [one for one in self.requests if one.api is api]

    def happened(self, kind: type) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]


@dataclass
class World:
    """A group and its members, in virtual time."""

    model: GroupModel = field(default_factory=GroupModel)
    clients: list[Client] = field(default_factory=list[Client])
    now: float = 100.0

    def add(self, **options: Any) -> Client:
        made = Client(self.model, self.now, **options)
        self.clients.append(made)
        return made

    def settle(self) -> None:
        """Do all that is due now."""
        for _ in range(1000):
            did = [one.run(self.now) for one in self.clients]
            if not any(did):
                return
        raise AssertionError("the members never come to rest")

    def advance(self, seconds: float) -> None:
        """Let time pass; applications poll."""
        end = self.now + seconds
        while self.now < end:
            self.settle()
            self.now = min(end, self.now + STEP_S)
            self.model.tick(self.now)
            for one in self.clients:
                one.member.record_poll(self.now)
        self.settle()
