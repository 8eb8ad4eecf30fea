"""Steps of the model. The product's own functions decide: lease, leader's round, fence.

Members act in any order, and time passes at any point, with these rules:

1. A tick reaches everybody. A member that is up, connected and not joining has a heartbeat answered
   in it; a fault is what stops that.
2. A rebalance ends when every known member has joined, or without those that have not after the
   rebalance timeout. A member is forgotten after a session timeout of silence.
3. A batch in flight lands at any time, also after its member was frozen, was expelled or died; once
   cancelled it may also vanish.
4. A member that revokes partitions commits them with the token of its round, if the coordinator knows the
   member and round. The member to which that round has promised them may begin them until it joins.
   Both join again, unless that round is the only one; the last member is of a version that knows none.
5. Faults: crash, freeze, cut (requests and answers are lost), late (an answer takes its time).
   Thawing and reconnecting come at any time.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from model.state import (
    DEAD,
    FROZEN,
    MEMBERS,
    NONE,
    OLDEST,
    OUTSIDE,
    PARTITIONS,
    REBALANCE_TICKS,
    SESSION_TICKS,
    UP,
    Action,
    Answer,
    Batch,
    Claim,
    Member,
    Promise,
    Seat,
    State,
)
from support.named_rounds import JoinedMember, assign_by_name, assignments
from trimtab.assignor.model import Load, PlacementPolicy, TopicPartition
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.rebalance.user_data import MemberUserData, group_by_topic
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan
from trimtab.consumer_sdk.membership.lease import Lease

GROUP: Final = "g"
TOPIC: Final = "orders"
NAMES: Final = tuple(f"m{number}" for number in MEMBERS)
NEWEST_GENERATION: Final = 10  # to which `behind` is relative; any number above OLDEST will do
_TOPIC_PARTITIONS: Final = tuple(TopicPartition(TOPIC, number) for number in PARTITIONS)
_VIEW: Final = LeaderView(Load(dict(zip(_TOPIC_PARTITIONS, (3.0, 2.0), strict=True))))
Claims = tuple[tuple[int, Claim], ...]


class Transitions:
    """All steps of a state; `heuristic` is the leader's."""

    def __init__(self, heuristic: str = "sticky") -> None:
        self._policy = PlacementPolicy(heuristic, capacity=10.0)
        self._decisions: dict[str, int] = {"": 0}
        # One instance has one set of product functions, which may be broken on purpose.
        self._assign = lru_cache(None)(self._assign_claims)
        self.is_lease_valid = lru_cache(None)(_is_lease_valid)
        self._conflict = lru_cache(None)(_finds_conflict)

    def successors(self, state: State) -> Iterator[tuple[Action, State]]:
        """Yield every step that is possible, and the state after it."""
        yield Action("tick"), self._tick(state)
        for number in MEMBERS:
            member, seat = state.members[number], state.seats[number]
            yield from self._flushing(state, number, member)
            if member.life == UP:
                yield from self._running(state, number, member, seat)
                if state.faults:
                    yield from _faults(state._replace(faults=state.faults - 1), number, member, seat)
            elif member.life == FROZEN:
                yield Action("thaw", number), state.with_member(number, member._replace(life=UP))

    def may_read(self, member: Member, partition: int) -> bool:
        """Return whether a member would hand out records of a partition."""
        owned = member.owned >> partition & 1 and member.life != DEAD
        return bool(owned) and self.is_lease_valid(member.contact, member.stable)

    # -- a member -----------------------------------------------------------------------------------

    def _running(
        self, state: State, number: int, member: Member, seat: Seat
    ) -> Iterator[tuple[Action, State]]:
        if member.batch is None and self.is_lease_valid(member.contact, member.stable):
            for partition in PARTITIONS:
                if self._can_read(state, member, partition):
                    yield Action("read", number, partition), _read(state, number, member, partition)
        if member.late != NONE:
            yield Action("answer", number), state.with_member(number, _renew_late(member))
        if member.cut:
            yield Action("reconnect", number), _reconnect(state, number, member, seat)
        else:
            yield from self._talking(state, number, member, seat)

    def _talking(
        self, state: State, number: int, member: Member, seat: Seat
    ) -> Iterator[tuple[Action, State]]:
        if member.joining == NONE and member.behind != OUTSIDE and _has_news(state, member, seat):
            yield Action("heartbeat", number), _heartbeat(state, number)
        if _should_join(state, member, seat):
            yield Action("join", number), self._join(state, number, member)
        if member.joining != NONE and seat.answer is not None:
            yield Action("receive", number), _receive(state, number, member, seat.answer)
        for partition in PARTITIONS:
            if _may_begin(state, member, seat, partition):
                yield Action("begin", number, partition), _begin(state, number, member, partition)

    def _can_read(self, state: State, member: Member, partition: int) -> bool:
        return bool(member.owned >> partition & 1) and member.positions[partition] < len(state.rows[0])

    def _flushing(self, state: State, number: int, member: Member) -> Iterator[tuple[Action, State]]:
        batch = member.batch
        if batch is not None:
            yield Action("land", number, batch.partition), self._land(state, number, member, batch)
            if batch.cancelled:
                done = _rewind(member, batch.partition, batch.seen)
                yield Action("vanish", number, batch.partition), state.with_member(number, done)

    def _land(self, state: State, number: int, member: Member, batch: Batch) -> State:
        """Commit a batch if its flush began and ends with the expected offset in the table."""
        partition, actual = batch.partition, state.offsets[batch.partition]
        if self._conflict(batch.expected, batch.seen):
            return state.with_member(number, _rewind(member, partition, batch.seen))
        if self._conflict(batch.expected, actual):
            return state.with_member(number, _rewind(member, partition, actual))
        rows = tuple(
            count + (batch.expected <= offset < batch.next)
            for offset, count in enumerate(state.rows[partition])
        )
        return state._replace(
            members=_put(state.members, number, member._replace(batch=None)),
            offsets=_put(state.offsets, partition, max(actual, batch.next)),
            rows=_put(state.rows, partition, rows),
        )

    def _join(self, state: State, number: int, member: Member) -> State:
        claim = Claim(member.owned, member.behind, member.promise)
        joined = state.with_seat(number, Seat(known=True, claim=claim))
        joined = joined.with_member(number, member._replace(joining=0))
        return self._complete(joined if joined.preparing != NONE else joined._replace(preparing=0))

    # -- the coordinator ------------------------------------------------------------------------------

    def _tick(self, state: State) -> State:
        state = state._replace(
            members=tuple(_age_member(member) for member in state.members),
            seats=tuple(
                seat._replace(silent=min(seat.silent + 1, SESSION_TICKS))
                if seat.known and seat.claim is None
                else seat
                for seat in state.seats
            ),
            preparing=state.preparing if state.preparing == NONE else state.preparing + 1,
        )
        for number, member in enumerate(state.members):
            if member.life == UP and not member.cut and member.joining == NONE and member.behind != OUTSIDE:
                state = _heartbeat(state, number)
        return self._expire(state)

    def _expire(self, state: State) -> State:
        """Forget silent members, and those that have not joined in time (rule 2)."""
        overdue = state.preparing >= REBALANCE_TICKS
        silent = [
            seat.known and seat.claim is None and (overdue or seat.silent >= SESSION_TICKS)
            for seat in state.seats
        ]
        if not any(silent):
            return state
        seats = tuple(
            seat._replace(known=False, silent=0) if gone else seat
            for seat, gone in zip(state.seats, silent, strict=True)
        )
        return self._complete(state._replace(seats=seats, preparing=max(state.preparing, 0)))

    def _complete(self, state: State) -> State:
        """End the rebalance if every known member has joined."""
        if any(seat.known and seat.claim is None for seat in state.seats):
            return state
        claims = tuple((number, seat.claim) for number, seat in enumerate(state.seats) if seat.claim)
        answers = self._assign(claims)
        return state._replace(
            members=tuple(m._replace(behind=_older(m.behind)) for m in state.members),
            seats=tuple(
                seat._replace(silent=0, claim=None, answer=answers.get(number, _age_answer(seat.answer)))
                for number, seat in enumerate(state.seats)
            ),
            preparing=NONE,
            released=tuple(_older(behind) for behind in state.released),
        )

    def _assign_claims(self, claims: Claims) -> dict[int, Answer]:
        """Return the assignments of the product's leader."""
        if not claims:
            return {}
        joined = [self._joined_member(number, claim) for number, claim in claims]
        outcome = assign_by_name(joined, _TOPIC_PARTITIONS, _VIEW, self._policy)
        decision = self._decisions.setdefault(outcome.decision_fingerprint, len(self._decisions))
        given = assignments(outcome)
        return {
            number: Answer(
                _mask(given[NAMES[number]].assigned),
                0,
                Promise(decision, _mask(given[NAMES[number]].promised), outcome.is_only_round),
            )
            for number, _ in claims
        }

    def _joined_member(self, number: int, claim: Claim) -> JoinedMember:
        fingerprints = list(self._decisions)
        return JoinedMember(
            NAMES[number],
            frozenset({TOPIC}),
            MemberUserData(
                instance=NAMES[number],
                decision_fingerprint=fingerprints[claim.promise.decision],
                promised=group_by_topic(_unmask(claim.promise.partitions)),
                confirms_releases=number != MEMBERS[-1],
            ),
            frozenset(_unmask(claim.owned)),
            OUTSIDE if claim.behind == OUTSIDE else NEWEST_GENERATION - claim.behind,
        )


# -- parts of steps ---------------------------------------------------------------------------------


def _is_lease_valid(contact: int, stable: int) -> bool:
    """Both leases of the product, `contact` and `stable` ticks ago."""
    session, rebalance = Lease(SESSION_TICKS, -contact), Lease(REBALANCE_TICKS, -stable)
    return session.is_valid(0) and rebalance.is_valid(0)


def _finds_conflict(expected: int, actual: int) -> bool:
    """The product's fence."""
    partition = _TOPIC_PARTITIONS[0]
    table = CommittedOffsets({GROUP: {partition: actual}})
    return bool(table.find_conflicts(GROUP, {partition: OffsetSpan(expected, expected, expected + 1)}))


def _renew(member: Member, sent: int, received: int) -> int:
    """Return `contact` after a heartbeat that was sent and answered these ticks ago."""
    return -int(Lease(SESSION_TICKS, -member.contact).renew_by_heartbeat(-sent, -received).last_contact)


def _renew_late(member: Member) -> Member:
    return member._replace(contact=_renew(member, member.late, 0), late=NONE)


def _has_news(state: State, member: Member, seat: Seat) -> bool:
    expelled = not seat.known or member.behind > 0
    return expelled or member.contact > 0 or (member.stable > 0 and state.preparing == NONE)


def _heartbeat(state: State, number: int) -> State:
    """Send a heartbeat, which is answered at once: the lease is renewed, or the membership lost."""
    member, seat = state.members[number], state.seats[number]
    if not seat.known or member.behind > 0:
        return state.with_member(number, _lose(member))
    stable = 0 if state.preparing == NONE else member.stable
    renewed = member._replace(contact=_renew(member, 0, 0), stable=stable)
    return state.with_member(number, renewed).with_seat(number, seat._replace(silent=0))


def _lose(member: Member) -> Member:
    batch = member.batch and member.batch._replace(cancelled=True)
    # answers from before the loss renew no lease
    return Member(member.life, member.cut, positions=member.positions, batch=batch)


def _should_join(state: State, member: Member, seat: Seat) -> bool:
    rebalances = state.preparing != NONE and seat.known and seat.claim is None
    retries = state.preparing != NONE and seat.claim is not None and member.joining == NONE
    starts = member.joining == NONE and (member.behind == OUTSIDE or (member.again and seat.known))
    return rebalances or retries or starts


def _receive(state: State, number: int, member: Member, answer: Answer) -> State:
    """Revoke and take partitions as assigned."""
    revoked, added = member.owned & ~answer.assigned, answer.assigned & ~member.owned
    batch = member.batch
    if batch is not None and revoked >> batch.partition & 1:
        # one that was refused when its flush began is known to have ended
        batch = batch._replace(cancelled=True) if batch.seen == batch.expected else None
    positions = tuple(
        state.offsets[partition] if added >> partition & 1 else member.positions[partition]
        for partition in PARTITIONS
    )
    lease = Lease(SESSION_TICKS, -member.contact).renew(-member.joining)
    is_released = answer.behind == 0 and state.seats[number].known
    received = member._replace(
        behind=answer.behind,
        owned=answer.assigned,
        contact=-int(lease.last_contact),
        stable=min(member.stable, member.joining),
        joining=NONE,
        again=bool(revoked) and not (is_released and answer.promise.is_only_round),
        promise=answer.promise,
        positions=positions,
        batch=batch,
    )
    if is_released:
        state = state._replace(
            released=tuple(
                0 if revoked >> partition & 1 else state.released[partition] for partition in PARTITIONS
            )
        )
    return state.with_member(number, received).with_seat(number, state.seats[number]._replace(answer=None))


def _may_begin(state: State, member: Member, seat: Seat, partition: int) -> bool:
    """Return whether the token of the member's round releases a partition that the round has promised it."""
    promised = member.promise.partitions & ~member.owned
    joins = member.joining != NONE or seat.claim is not None or seat.answer is not None
    return (
        bool(promised >> partition & 1)
        and not joins
        and state.released[partition] == member.behind != OUTSIDE
    )


def _begin(state: State, number: int, member: Member, partition: int) -> State:
    positions = _put(member.positions, partition, state.offsets[partition])
    again = member.again or not member.promise.is_only_round
    begun = member._replace(owned=member.owned | 1 << partition, positions=positions, again=again)
    return state.with_member(number, begun)


def _read(state: State, number: int, member: Member, partition: int) -> State:
    offset = member.positions[partition]
    batch = Batch(partition, offset, offset + 1, state.offsets[partition])
    positions = _put(member.positions, partition, offset + 1)
    return state.with_member(number, member._replace(positions=positions, batch=batch))


def _rewind(member: Member, partition: int, offset: int) -> Member:
    owned = member.owned >> partition & 1
    positions = _put(member.positions, partition, offset) if owned else member.positions
    return member._replace(positions=positions, batch=None)


def _reconnect(state: State, number: int, member: Member, seat: Seat) -> State:
    """Connect again; what was on its way to the member is lost."""
    back = member._replace(cut=False, joining=NONE)
    return state.with_member(number, back).with_seat(number, seat._replace(answer=None))


def _faults(state: State, number: int, member: Member, seat: Seat) -> Iterator[tuple[Action, State]]:
    dead = Member(DEAD, batch=member.batch and member.batch._replace(cancelled=True))
    yield Action("crash", number), state.with_member(number, dead)
    yield Action("freeze", number), state.with_member(number, member._replace(life=FROZEN))
    if not member.cut:
        yield Action("cut", number), state.with_member(number, member._replace(cut=True))
        if member.behind == 0 and member.joining == member.late == NONE and seat.known:
            sent = state.with_member(number, member._replace(late=0))
            yield Action("late", number), sent.with_seat(number, seat._replace(silent=0))


def _age_member(member: Member) -> Member:
    return member._replace(
        contact=min(member.contact + 1, SESSION_TICKS),
        stable=min(member.stable + 1, REBALANCE_TICKS),
        late=_age(member.late),
        joining=_age(member.joining),
    )


def _age(ticks: int) -> int:
    return ticks if ticks == NONE else min(ticks + 1, REBALANCE_TICKS)


def _older(behind: int) -> int:
    return behind if behind == OUTSIDE else min(behind + 1, OLDEST)


def _age_answer(answer: Answer | None) -> Answer | None:
    return answer and answer._replace(behind=_older(answer.behind))


def _mask(partitions: frozenset[TopicPartition]) -> int:
    return sum(1 << partition.partition for partition in partitions)


def _unmask(mask: int) -> list[TopicPartition]:
    return [partition for number, partition in enumerate(_TOPIC_PARTITIONS) if mask >> number & 1]


def _put(values: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])
