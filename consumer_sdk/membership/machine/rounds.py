"""What a round's assignment says, and what the leader decided beside it.

Rules 12 to 14 of a classic member:

12. What a round takes away is revoked first; what it gives is reported after the release. Then the member
    joins again (KIP-429), unless the release is confirmed in a round that may be the only one.
13. An unreadable assignment of a hostile leader is empty; one with topics that are not subscribed changes
    nothing, and the member joins again. What an only round promises is withheld until its release.
14. Promised partitions are looked for, and begun, by the rules of `release_watch`; not once a join was sent.
"""

from dataclasses import dataclass
from typing import Any

from trimtab.assignor.rebalance.user_data import AssignmentUserData
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import InvalidPayloadError
from trimtab.consumer_sdk.client.commit_metadata import format_round_token, parse_release
from trimtab.consumer_sdk.membership.machine.assignments import decode_partitions
from trimtab.consumer_sdk.membership.machine.values import Partitions
from trimtab.consumer_sdk.membership.release_watch import ReleaseWatch


@dataclass(frozen=True, slots=True)
class Round:
    """The last round, as this member's assignment describes it."""

    generation: int = -1
    assigned: Partitions = frozenset()
    user_data: bytes | None = None
    fault: str = ""  # why the assignment is not followed
    token: str = ""  # of releases
    watch: ReleaseWatch | None = None
    is_only: bool = False  # if its releases are confirmed
    is_empty: bool = False  # a leader of ours assigned and promised nothing
    round_follows: bool = False


NO_ROUND = Round()


def read_round(data: bytes, generation: int, now: float, *, is_ours: bool, watches: bool) -> Round:
    """Read an assignment, which `is_ours` if our assignor made it; `watches`: reading begins at releases."""
    assigned, user_data, fault = decode_partitions(data)
    decision = AssignmentUserData()
    if is_ours and not fault:
        try:
            decision = AssignmentUserData.decode(user_data)
            assigned -= decision.list_early()
        except InvalidPayloadError as error:  # any of its partitions could be a promised one
            assigned, fault = frozenset(), str(error)
    token = format_round_token(generation, decision.decision_fingerprint)
    promised = [TopicPartition(topic, n) for topic, numbers in decision.promised for n in numbers]
    watch = ReleaseWatch(promised, generation, token, now, is_only_round=decision.is_only_round)
    return Round(
        generation,
        assigned,
        user_data,
        fault,
        token,
        watch if watches and decision.starts_at_release and token else None,
        is_only=decision.is_only_round and bool(token),
        is_empty=bool(token) and not (assigned or promised),
        round_follows=decision.round_follows,
    )


def read_releases(answer: Any, token: str) -> dict[TopicPartition, bool]:
    """Return the partitions that an OffsetFetch shows as released in this round; True: confirmed."""
    rows = [(TopicPartition(t.name, p.partition_index), p) for t in answer.topics for p in t.partitions]
    releases = {partition: parse_release(row.metadata) for partition, row in rows}
    return {partition: one.is_confirmed for partition, one in releases.items() if one.token == token}
