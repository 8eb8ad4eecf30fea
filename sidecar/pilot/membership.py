"""Membership of a pilot in a group of the new protocol (KIP-848), as a state machine. Pure.

1. The rack id carries the plan. A changed rack id alone starts no assignment: the same heartbeat changes
   the subscription, between two topics that need not exist.
2. The member id of a pilot is the same in every sidecar. The one that takes over joins with epoch 0 and
   replaces the membership of the other one, and with it the plan: no member leaves, none is added.
3. After an error nobody knows what the coordinator has received: the pilot joins again. What the group
   knew of the subscription is unknown, too, so a join carries no plan out until the next heartbeat has
   changed the subscription once more.
4. A pilot does not leave when its sidecar ends: the plan stays until the session times out, so that a
   successor finds the group unchanged; after that the partitions stay where they are. It leaves only to
   take back a vote (`assignor_vote`), and joins again.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from trimtab.sidecar.plan_carrier import PILOT_CLIENT_ID

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
REBALANCE_TIMEOUT_MS: Final = 60_000  # a pilot has nothing to revoke
ASSIGNOR_NAME: Final = "trimtab"  # of the broker plugin


@dataclass(frozen=True, slots=True)
class PilotMembership:
    """One pilot; several carry the pieces of a plan that is too long for one rack id."""

    member_id: str
    rack: str  # carries the plan
    epoch: int = JOIN_EPOCH
    side: int = 1  # number of the subscribed topic: 1 or 2
    is_pending: bool = True  # the coordinator may not know the rack, or the subscription, yet

    def carry(self, rack: str) -> "PilotMembership":
        """Return the membership with another piece of a plan, or with the same."""
        return self if rack == self.rack else self.change_side(rack)

    def build_heartbeat(self, topic_prefix: str, assignor: str | None = None) -> dict[str, Any]:
        """Return the fields of the next ConsumerGroupHeartbeat (version 1), but for the group.

        `assignor` is what the pilot asks for when it joins; None leaves it to the group.
        """
        joins = self.epoch == JOIN_EPOCH
        fields: dict[str, Any] = {
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS if joins else -1,
            "server_assignor": assignor if joins else None,
            "topic_partitions": [],
        }
        if self.is_pending:  # null: unchanged
            fields |= {"rack_id": self.rack, "subscribed_topic_names": [f"{topic_prefix}-{self.side}"]}
        return fields

    def build_leave(self) -> dict[str, Any]:
        """Return the fields of the heartbeat that ends the membership."""
        return {"member_id": self.member_id, "member_epoch": LEAVE_EPOCH}

    def record_response(self, epoch: int) -> "PilotMembership":
        """Return the membership after a response with the member's epoch."""
        joined = replace(self, epoch=epoch, is_pending=False)
        return joined.change_side(self.rack) if self.epoch == JOIN_EPOCH else joined

    def record_loss(self) -> "PilotMembership":
        """Return the membership after an error: it joins again (rule 3)."""
        return replace(self, epoch=JOIN_EPOCH, is_pending=True)

    def change_side(self, rack: str) -> "PilotMembership":
        """Return the membership with a rack, and another subscription, which starts an assignment."""
        return replace(self, rack=rack, side=3 - self.side, is_pending=True)


def carry_pieces(pilots: tuple[PilotMembership, ...], racks: tuple[str, ...]) -> tuple[PilotMembership, ...]:
    """Return a pilot for each piece of a plan; those beyond them are left to time out."""
    kept = [pilot.carry(rack) for pilot, rack in zip(pilots, racks, strict=False)]
    return (*kept, *(PilotMembership(name_pilot(n), racks[n]) for n in range(len(kept), len(racks))))


def name_pilot(number: int) -> str:
    """Return the member id of a pilot, numbered from 0."""
    return f"{PILOT_CLIENT_ID}-{number + 1}"
