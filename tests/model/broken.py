"""Rules of the product, broken on purpose: the search must find each, and the product must show it too."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest import mock

from model.state import REBALANCE_TICKS
from simulation.broken import lease_for_ever, nothing_withheld, table_offsets_not_compared
from trimtab.consumer_sdk.membership.lease import Lease


def renewed_when_answered() -> AbstractContextManager[Any]:
    """Count the lease from the answer of a heartbeat, not from when it was sent."""

    def renew(self: Lease, _sent_at: float, received_at: float) -> Lease:
        return self.renew(received_at)

    return mock.patch.object(Lease, "renew_by_heartbeat", renew)


def one_lease_only() -> AbstractContextManager[Any]:
    """Read on however long a rebalance takes."""
    usual = Lease.is_valid

    def is_valid(self: Lease, now: float) -> bool:
        return self.timeout == REBALANCE_TICKS or usual(self, now)

    return mock.patch.object(Lease, "is_valid", is_valid)


BROKEN_RULES: Final[dict[str, Callable[[], AbstractContextManager[Any]]]] = {
    broken.__name__: broken
    for broken in (
        lease_for_ever,
        nothing_withheld,
        table_offsets_not_compared,
        renewed_when_answered,
        one_lease_only,
    )
}
