"""Invariant 10: what a leader assigns and promises is its plan's target, re-derived here by name.

Nothing of `rebalance.plan_target` is used. A partition of a consumer that is present is with it, unless
an absent consumer, or an owned partition that the plan does not know, holds up the round: then it may
stay with its owner. A partition of an absent consumer stays with its owner, is with a joiner that stands
for the absent one, or had no owner. A joiner beyond the plan may hold anything; where no load says what
it is to get, so may all. A joiner that reads one consumer's share, and nothing else, keeps it while its
consumer is absent.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import NOT_PLACED, PlanTarget
from trimtab.testing.simulation.broker import Group

Owners = dict[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class Round:
    """One round by name: who is eligible, who reads what before, and who gets or is promised what."""

    eligible: frozenset[str]
    before: Owners
    after: Owners
    faults: frozenset[str]
    expecting: frozenset[str]  # members that an earlier round promised something


def decode_round(group: Group, given: Mapping[str, bytes], draining: Iterable[str]) -> Round:
    """Return a round from the bytes of its members and of its leader."""
    before, after, eligible, faults, expecting = Owners(), Owners(), set[str](), set[str](), set[str]()
    for member in group.members.values():
        sent = ConsumerProtocolSubscription.decode(member.subscription)
        told = MemberUserData.decode(sent.user_data)
        expecting |= {member.client} if told.promised else set()
        if not told.draining and member.client not in draining:
            eligible.add(member.client)
        before |= {
            TopicPartition(tp.topic, p): member.client for tp in sent.owned_partitions for p in tp.partitions
        }
        received = ConsumerProtocolAssignment.decode(given[member.id])
        data = AssignmentUserData.decode(received.user_data)
        faults |= {data.fault} - {""}
        after |= {TopicPartition(tp.topic, tp.partition): member.client for tp in received.partitions()}
        after |= {
            TopicPartition(topic, p): member.client for topic, numbers in data.promised for p in numbers
        }
    return Round(frozenset(eligible), before, after, frozenset(faults), frozenset(expecting))


def group_by_consumer(target: PlanTarget) -> Mapping[int, list[TopicPartition]]:
    """Return the partitions of each consumer number that has some."""
    shares: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for topic, numbers in target.partitions.items():
        for partition, number in enumerate(numbers):
            if number:
                shares[number].append(TopicPartition(topic, partition))
    return shares


def _restrict_target(target: PlanTarget, knew: Callable[[TopicPartition], bool]) -> PlanTarget:
    """Return the target without the partitions that the leader had not heard of."""
    known = {
        topic: tuple(of if knew(TopicPartition(topic, n)) else NOT_PLACED for n, of in enumerate(numbers))
        for topic, numbers in target.partitions.items()
    }
    return replace(target, partitions=known)


def leaves_joiners_idle(plan: GroupPlan, eligible: frozenset[str], *, measured: bool) -> bool:
    """Return whether there are joiners beyond the plan, and no load or no heuristic to fill them by it."""
    by_load = measured and plan.heuristic not in ("sticky", "lag-aware", "rack-aware")
    return plan.target is not None and len(eligible) > plan.target.size and not by_load


def find_deviations(
    plan: GroupPlan, seen: Round, knew: Callable[[TopicPartition], bool], *, anew: bool = False
) -> Iterator[str]:
    """Yield what in a round is neither the plan's target nor one of its repairs.

    `knew`: the partitions of the leader's metadata of this round, which the sidecar's may be ahead of.
    `anew`: the target is left, since joiners beyond it would read nothing.
    """
    if plan.target is None:
        return
    target = _restrict_target(plan.target, knew)
    yield from (f"plan {plan.epoch} failed: {fault}" for fault in sorted(seen.faults))
    present = seen.eligible & set(target.consumers)
    joiners = seen.eligible - present
    if anew or (not present and not target.places):
        return  # void, unless joiners hold what consumers had
    beyond = joiners if len(joiners) > target.size - len(present) else frozenset[str]()
    yield from _find_reshuffled(target, seen, joiners - beyond - seen.expecting)
    unknown = seen.before.keys() - set().union(*group_by_consumer(target).values())
    if present >= set(target.consumers) and len(joiners) == target.places and not unknown:
        yield from find_misplaced(target, seen.after, seen.eligible)
        return
    for number, share in group_by_consumer(target).items():
        name = target.consumers[number - 1] if number <= len(target.consumers) else "a joiner"
        for partition in share:
            holder, owner = seen.after.get(partition), seen.before.get(partition)
            allowed = {name, owner} if name in present else {owner, *joiners}
            ownerless = name not in present and owner not in seen.eligible
            if holder not in allowed | beyond and not ownerless:
                yield f"{partition} of {name} went from {owner} to {holder}, {sorted(present)} are there"


def _find_reshuffled(target: PlanTarget, seen: Round, joiners: Iterable[str]) -> Iterator[str]:
    shares = group_by_consumer(target)
    planned = set().union(*shares.values())
    for joiner in sorted(joiners):
        read = {p for p, owner in seen.before.items() if owner == joiner} & planned
        lost = {p for p in read if seen.after.get(p) != joiner}
        for number, share in shares.items():
            absent = (
                target.consumers[number - 1 : number] == ()
                or target.consumers[number - 1] not in seen.eligible
            )
            if lost and absent and read == set(share):
                yield f"{joiner} stood for consumer {number}, and lost {sorted(lost)}"


def find_misplaced(
    target: PlanTarget, owners: Mapping[TopicPartition, str], alive: Collection[str]
) -> Iterator[str]:
    """Yield the shares that are not with one consumer each, the one of their name if that is there.

    With fewer consumers than the target has, some read what the absent ones are to read.
    """
    holders: dict[str, int] = {}
    for number, share in sorted(group_by_consumer(target).items()):
        found = sorted({str(owners.get(p)) for p in share})
        named = target.consumers[number - 1] if number <= len(target.consumers) else ""
        shared = len(found) > 1 or holders.setdefault(found[0], number) != number
        if found != [named] if named in alive else shared and len(alive) >= target.size:
            yield f"the share of consumer {number} ({named or 'a place'}) is with {found}"
