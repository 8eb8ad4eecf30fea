"""What every plugin's leader does alike: settings, partitions to assign, the log of a round."""

import logging
from collections.abc import Collection, Mapping, Sequence

from trimtab.assignor import registry
from trimtab.assignor.errors import BadPayload, SettingError
from trimtab.assignor.model import Policy, TopicPartition
from trimtab.assignor.rebalance import Joined, Round
from trimtab.assignor.units import format_rate, parse_rate
from trimtab.assignor.userdata import MemberData, PlacementData

log = logging.getLogger("trimtab.assignor")


def own_policy(heuristic: str, capacity: str | float | None) -> tuple[Policy, float | None]:
    """Return the leader's policy, the member's capacity. Raises UnknownHeuristic, SettingError."""
    registry.get(heuristic)
    if capacity is None:
        return Policy(heuristic=heuristic), None
    rate = parse_rate(capacity, "capacity")
    if rate <= 0:
        raise SettingError(f"capacity: {capacity!r} must be above 0")
    return Policy(heuristic=heuristic, capacity=rate), rate


def partitions_to_assign(
    joined: Sequence[Joined],
    known: Mapping[str, Collection[int] | None],
    own_topics: Collection[str],
) -> list[TopicPartition]:
    """Return the sorted partitions of all subscribed topics.

    `known` maps a topic to its partition numbers, None where the leader's metadata does not hold
    it. If the leader itself subscribes to such a topic, it does not exist (any more): nothing is
    assigned. If not, its metadata is still on the way and starts the next rebalance: until then the
    owners keep what they have.
    """
    found = {TopicPartition(topic, p) for topic, numbers in known.items() for p in numbers or ()}
    waiting = {t for t, numbers in known.items() if numbers is None and t not in own_topics}
    kept = {p for j in joined for p in j.owned if p.topic in waiting}
    return sorted(found | kept)


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
    """Log each move with its reason, and each note."""
    if not outcome.fresh:
        return
    log.info("decision %s: %d moves, R %.2f", outcome.decision, len(outcome.moves), outcome.r_score)
    for note in outcome.notes:
        log.warning("%s", note)
    for move in outcome.moves:
        log.info(
            "%s (%s): %s → %s: %s",
            move.partition,
            format_rate(move.speed),
            outcome.name(move.source),
            outcome.name(move.target),
            move.reason,
        )
