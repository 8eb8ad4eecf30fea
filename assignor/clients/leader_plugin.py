"""What every plugin's leader does alike: settings, one round of a rebalance, its log."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from trimtab.assignor.heuristics import registry
from trimtab.assignor.model import IntArray, Policy
from trimtab.assignor.move_reasons import Moves
from trimtab.assignor.partition_index import Universe
from trimtab.assignor.racks.replica_racks import Replicas
from trimtab.assignor.rebalance.consumer_protocol import Decoder, Subscription
from trimtab.assignor.rebalance.group_snapshot import enroll
from trimtab.assignor.rebalance.leader import Round, View, answer
from trimtab.assignor.rebalance.user_data import MemberData, PlacementData
from trimtab.common.errors import BadPayload, SettingError
from trimtab.common.units import format_rate, parse_rate

log = logging.getLogger("trimtab.assignor")

LOGGED: Final = 20
"""Moves of a decision that are logged one by one, the largest."""


def own_policy(heuristic: str, capacity: str | float | None) -> tuple[Policy, float | None]:
    """Return the leader's policy, the member's capacity. Raises UnknownHeuristic, SettingError."""
    registry.usable(heuristic)
    if capacity is None:
        return Policy(heuristic=heuristic), None
    rate = parse_rate(capacity, "capacity")
    if rate <= 0:
        raise SettingError(f"capacity: {capacity!r} must be above 0")
    return Policy(heuristic=heuristic, capacity=rate), rate


def read_subscriptions(raw: Mapping[str, bytes]) -> dict[str, Subscription]:
    """Read what each member sent; one that cannot be understood subscribes to nothing."""
    decoder = Decoder()
    return {member: _subscription(decoder, member, data) for member, data in raw.items()}


def _subscription(decoder: Decoder, member: str, data: bytes) -> Subscription:
    try:
        return decoder.subscription(data)
    except BadPayload as error:
        log.warning("member %s: %s; it is given nothing", member, error)
        return Subscription()


def subscribed_topics(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    """Return every topic that somebody subscribes to."""
    return frozenset(chain.from_iterable({s.topics for s in subscriptions.values()}))


def lead_group(
    subscriptions: Mapping[str, Subscription],
    known: Mapping[str, Collection[int] | None],
    own_topics: Collection[str],
    view: View,
    own: Policy,
) -> Round:
    """Lead a round: decide or complete, and stage.

    `known` maps a topic to its partition numbers, None where the leader's metadata does not hold
    it; `own_topics` are those that the leader subscribes to.
    """
    data = {member: member_data(member, s.user_data) for member, s in subscriptions.items()}
    universe = partitions_to_assign(subscriptions, known, own_topics)
    return answer(enroll(subscriptions, data, universe), view, own)


def partitions_to_assign(
    subscriptions: Mapping[str, Subscription],
    known: Mapping[str, Collection[int] | None],
    own_topics: Collection[str],
) -> Universe:
    """Return the partitions of all subscribed topics.

    If the leader itself subscribes to a topic that its metadata does not hold, it does not exist
    (any more): nothing is assigned. If not, its metadata is still on the way and starts the next
    rebalance: until then the owners keep what they have.
    """
    found = {topic: _array(numbers) for topic, numbers in known.items() if numbers is not None}
    waiting = {t for t, numbers in known.items() if numbers is None and t not in own_topics}
    for topic in waiting:
        found[topic] = np.concatenate([s.owned.numbers(topic) for s in subscriptions.values()])
    return Universe.of(found)


def _array(numbers: Collection[int]) -> IntArray:
    return np.fromiter(numbers, dtype=np.int32, count=len(numbers))


def replicas_held(
    held: Mapping[str, Mapping[int, Any]],
    rack: Mapping[int, str | None],
    nodes: Callable[[Any], Sequence[int]],
    universe: Universe,
) -> Replicas:
    """Return in which racks replicas are; `held` is a client's metadata by topic and number.

    `rack` is by broker; `nodes` returns the brokers of one partition.
    """
    topics = {
        topic: {n: [rack.get(node) for node in nodes(p)] for n, p in held[topic].items()}
        for topic in universe.topics
        if topic in held
    }
    return Replicas.of(universe, topics)


def member_data(member: str, user_data: bytes | None) -> MemberData:
    """Read a member's user data; one that cannot be understood says nothing."""
    try:
        return MemberData.decode(user_data)
    except BadPayload as error:
        log.warning("member %s: %s; it counts as one that says nothing", member, error)
        return MemberData()


def placement_data(user_data: bytes | None) -> PlacementData:
    """Read an assignment's user data; one that cannot be understood says nothing."""
    try:
        return PlacementData.decode(user_data)
    except BadPayload as error:
        log.warning("the leader's user data is not understood: %s", error)
        return PlacementData()


def log_round(outcome: Round) -> None:
    """Log a fresh decision: its notes, and its largest moves with their reasons (all at DEBUG)."""
    moves = outcome.moves
    if not isinstance(moves, Moves):
        return
    crossing = outcome.crossing
    log.info(
        "decision %s: %d moves, R %.2f%s",
        outcome.decision,
        len(moves),
        outcome.r_score,
        "" if crossing is None else f", {format_rate(crossing)} crosses racks",
    )
    for note in outcome.notes:
        log.warning("%s", note)
    if not log.isEnabledFor(logging.INFO):
        return
    shown = moves.largest(len(moves) if log.isEnabledFor(logging.DEBUG) else LOGGED)
    for move in shown:
        log.info(
            "%s (%s): %s → %s: %s",
            move.partition,
            format_rate(move.speed),
            outcome.name(move.source),
            outcome.name(move.target),
            move.reason,
        )
    if len(moves) > len(shown):
        rest = format_rate(max(0.0, moves.speed - shown.speed))
        log.info("and %d smaller moves, %s together", len(moves) - len(shown), rest)
