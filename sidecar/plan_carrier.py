"""The interface of plan carriers: they carry out a plan in a group whose clients know no plans.

1. The control loop calls `carry_out` or `stand_by` once per iteration. Both return at once; the carrier
   works in a thread of its own, so that a slow coordinator delays no decision.
2. Only the managing sidecar carries a plan out. The others' carriers are ready to take over.
3. Carriers may join the group as members without partitions. Their client ids distinguish them:
   `BrokerClient.describe_group` leaves them out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from trimtab.assignor.model import Load, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad

LEAD_CLIENT_ID: Final = "trimtab-lead"  # of a classic group
PILOT_CLIENT_ID: Final = "trimtab-pilot"  # of a group of KIP-848
CARRIER_CLIENT_IDS: Final = frozenset({LEAD_CLIENT_ID, PILOT_CLIENT_ID})


@dataclass(frozen=True, slots=True)
class CarrierStatus:
    """Whether the group's members get the partitions that the plan gives them."""

    is_steering: bool
    text: str  # one sentence: "leads the group since 12:04", "unsteered: led by member X's own assignor"
    since: float | None = None  # of this state, seconds since the epoch
    errors: tuple[str, ...] = ()

    def format_line(self) -> str:
        """Return the text with the time since when it holds."""
        if self.since is None:
            return f"Plan carrier: {self.text}"
        return f"Plan carrier: {self.text} (since {datetime.fromtimestamp(self.since, UTC):%F %T} UTC)"


class PlanCarrier(Protocol):
    """Carries out plans, in a thread of its own."""

    def carry_out(
        self, plan: GroupPlan | None, write_rates: Mapping[TopicPartition, PartitionLoad]
    ) -> CarrierStatus | None:
        """Carry out this plan from now on; return the status so far, None if there is nothing to carry."""
        ...

    def stand_by(self) -> CarrierStatus | None:
        """Leave the group to another sidecar's carrier."""
        ...

    def close(self) -> None:
        """End the thread; a successor finds the group as it is."""
        ...


def build_load(write_rates: Mapping[TopicPartition, PartitionLoad]) -> Load:
    """Return the measured load as a decision uses it."""
    loads = write_rates.items()
    lags = {p: load.backlog_records for p, load in loads}
    return Load(
        {p: load.weight for p, load in loads}, lags, {p: load.stddev_bytes_per_s for p, load in loads}
    )
