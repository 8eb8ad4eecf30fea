"""Shared code of the plugins: settings, one rebalance round, logging."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import numpy as np

from trimtab.assignor.capacity import GREATEST_CAPACITY, LEAST_CAPACITY, is_valid_capacity
from trimtab.assignor.heuristics import registry
from trimtab.assignor.model import Load, PlacementPolicy
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.model.replica_racks import ReplicaRacks
from trimtab.assignor.modes.move_reasons import DecidedMoves, list_plan_notes, note_unknown_load
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription, SubscriptionDecoder
from trimtab.assignor.rebalance.group_snapshot import snapshot_from_subscriptions
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound, assign_round
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData
from trimtab.common.errors import InvalidPayloadError, SettingError
from trimtab.common.settings.settings_model import CO_PARTITIONED_EXAMPLE, parse_topic_groups
from trimtab.common.units import format_rate, parse_rate

log = logging.getLogger("trimtab.assignor")

MAX_LOGGED_MOVES: Final = 20  # at INFO; a group may move 100,000 partitions at once


def parse_own_policy(
    heuristic: str, capacity: str | float | None, co_partitioned: str | Iterable[Iterable[str]] = ()
) -> tuple[PlacementPolicy, float | None]:
    """Return the leader's policy and the member's capacity in bytes/s.

    Raises UnknownHeuristicError, BrokenHeuristicError, SettingError.
    """
    registry.get_installed_heuristic(heuristic)
    policy = PlacementPolicy(heuristic=heuristic, co_partitioned=_parse_co_partitioned(co_partitioned))
    if capacity is None:
        return policy, None
    rate = parse_rate(capacity, "capacity")
    if not is_valid_capacity(rate):
        raise SettingError(
            f"capacity: {capacity!r} must be above 0: from {LEAST_CAPACITY:g} to {GREATEST_CAPACITY:g} B/s"
        )
    return replace(policy, capacity=rate), rate


def _parse_co_partitioned(value: Any) -> tuple[tuple[str, ...], ...]:
    try:
        groups = parse_topic_groups(value if isinstance(value, str) else [_to_list(g) for g in value])
    except (TypeError, ValueError) as error:
        raise SettingError(f"co_partitioned: {error}") from None
    return tuple(map(tuple, groups))


def _to_list(group: Any) -> Any:
    names = group if isinstance(group, str) else tuple(group)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{group!r} has no topic names; write {CO_PARTITIONED_EXAMPLE}")
    return names


def decode_subscriptions(raw: Mapping[str, bytes]) -> dict[str, MemberSubscription]:
    """Decode each member's subscription; a malformed one becomes an empty subscription."""
    decoder = SubscriptionDecoder()
    subscriptions = dict[str, MemberSubscription]()
    for member, data in raw.items():
        try:
            subscriptions[member] = decoder.decode(data)
        except InvalidPayloadError as error:  # failing the round would stop the whole group
            log.warning("member %s: %s; it gets no partitions", member, error)
            subscriptions[member] = MemberSubscription()
    return subscriptions


def subscribed_topics(subscriptions: Mapping[str, MemberSubscription]) -> frozenset[str]:
    """Return the topics of all subscriptions."""
    return frozenset(chain.from_iterable({s.topics for s in subscriptions.values()}))


def read_view(view: Callable[[], LeaderView]) -> LeaderView:
    """Return the leader's view; without load and plan if the application's function fails."""
    try:
        return view()
    except Exception:  # an error would end one leader after the other
        log.exception("the leader's view failed; deciding without load and plan")
        return LeaderView(Load())


def report_round(on_round: Callable[[RebalanceRound], None], outcome: RebalanceRound) -> None:
    """Call the application's function; log its error."""
    try:
        on_round(outcome)
    except Exception:  # as in `read_view`
        log.exception("reporting decision %s failed", outcome.decision_fingerprint)


def lead_group(
    subscriptions: Mapping[str, MemberSubscription],
    partition_numbers: Mapping[str, Collection[int] | None],
    own_topics: Collection[str],
    view: LeaderView,
    default_policy: PlacementPolicy,
) -> RebalanceRound:
    """Lead one round of a rebalance.

    `partition_numbers` maps a topic to its partition numbers, None if it is missing in the leader's
    metadata; `own_topics` are the topics the leader subscribes to.
    """
    data = {member: decode_member_data(member, s.user_data) for member, s in subscriptions.items()}
    index = index_partitions(subscriptions, partition_numbers, own_topics)
    return assign_round(snapshot_from_subscriptions(subscriptions, data, index), view, default_policy)


def index_partitions(
    subscriptions: Mapping[str, MemberSubscription],
    partition_numbers: Mapping[str, Collection[int] | None],
    own_topics: Collection[str],
) -> PartitionIndex:
    """Return the index of the partitions of all subscribed topics.

    A missing topic is deleted if the leader subscribes to it: nothing of it is assigned. Otherwise
    its owners keep their partitions.
    """
    known = {
        topic: np.fromiter(numbers, dtype=np.int32, count=len(numbers))
        for topic, numbers in partition_numbers.items()
        if numbers is not None
    }
    # The leader requests metadata of all subscribed topics; their arrival starts a rebalance.
    pending = {t for t, numbers in partition_numbers.items() if numbers is None and t not in own_topics}
    for topic in pending:
        claimed = np.concatenate([s.owned.numbers_of_topic(topic) for s in subscriptions.values()])
        known[topic] = claimed[claimed >= 0]
    return PartitionIndex.from_numbers(known)


def build_replica_racks(
    metadata: Mapping[str, Mapping[int, Any]],
    rack: Mapping[int, str | None],
    replica_nodes: Callable[[Any], Sequence[int]],
    partition_index: PartitionIndex,
) -> ReplicaRacks:
    """Return the racks of each partition's replicas, from a client's metadata and racks by broker."""
    topics = {
        topic: {n: [rack.get(node) for node in replica_nodes(p)] for n, p in metadata[topic].items()}
        for topic in partition_index.topics
        if topic in metadata
    }
    return ReplicaRacks.from_topics(partition_index, topics)


def decode_member_data(member: str, user_data: bytes | None) -> MemberUserData:
    """Decode a member's user data; malformed data gives the defaults."""
    try:
        return MemberUserData.decode(user_data)
    except InvalidPayloadError as error:
        log.warning("member %s: %s; its user data is ignored", member, error)
        return MemberUserData()


def decode_assignment_data(user_data: bytes | None) -> AssignmentUserData:
    """Decode an assignment's user data; malformed data gives the defaults."""
    try:
        return AssignmentUserData.decode(user_data)
    except InvalidPayloadError as error:
        log.warning("the leader's user data is ignored: %s", error)
        return AssignmentUserData()


def log_round(outcome: RebalanceRound) -> None:
    """Log a new decision: its notes and its largest moves with reasons (at DEBUG all moves)."""
    decision = outcome.placement_decision
    if outcome.fault and (decision or not outcome.decision_fingerprint):  # once, not when it is completed
        log.warning("decision failed: %s", outcome.fault)
    if decision is None:
        return
    moves = DecidedMoves(decision)
    cross_rack = decision.cross_rack_load
    log.info(
        "decision %s: %d moves, R %.2f%s",
        outcome.decision_fingerprint,
        len(moves),
        decision.r_score,
        "" if cross_rack is None else f", {format_rate(cross_rack)} crosses racks",
    )
    if outcome.note:
        log.log(logging.WARNING if outcome.off_plan else logging.INFO, "%s", outcome.note)
    are_known = decision.indexed.measured.any()
    lag_known = decision.indexed.lag_known
    is_blind = not (are_known if lag_known is None else lag_known.any())  # as without a sidecar: no news
    no_news = tuple(note_unknown_load(decision)) if is_blind else ()
    for note in list_plan_notes(decision):
        log.log(logging.INFO if note in no_news else logging.WARNING, "%s", note)
    if not log.isEnabledFor(logging.INFO):
        return  # a move's reason takes longer to write than the move to decide
    shown = moves.select_largest(len(moves) if log.isEnabledFor(logging.DEBUG) else MAX_LOGGED_MOVES)
    for move in shown:
        log.info(
            "%s (%s): %s → %s: %s",
            move.partition,
            format_rate(move.write_rate) if are_known else "rate unknown",
            outcome.display_name(move.source),
            outcome.display_name(move.target),
            move.reason,
        )
    if len(moves) > len(shown):
        rest = format_rate(max(0.0, moves.write_rate - shown.write_rate))
        log.info("and %d smaller moves, %s together", len(moves) - len(shown), rest)
