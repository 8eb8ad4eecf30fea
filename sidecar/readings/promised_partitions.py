"""Partitions that the group already shows with their next owner, although the former one may still read them.

A round that needs no second one (rules 5 to 8 of the SDK's `release_watch`) lists what it promises with the
next owner, which begins at the release. The commits tell that: the former owner's last one has the decision
in its round's token, and each one of the next owner the time of its handover.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.model.observation import ObservedMember

MAX_RELEASE_WAIT_S: Final = 30.0  # applications commit metadata of their own, which tells nothing


class PromiseTracker:
    """The decision whose promises the group shows, and since when."""

    def __init__(self) -> None:
        self._decision = ""
        self._promised_after = -inf  # wall time of the last observation without the decision
        self._wait_until = -inf
        self._observed_at = -inf

    def list_unreleased(
        self,
        members: Iterable[ObservedMember],
        commit_metadata: Mapping[TopicPartition, str],
        wall_time: float,
        now: float,
    ) -> frozenset[TopicPartition]:
        """Return the promised partitions whose former owner is not known to have stopped."""
        promised = {p: m.decision_fingerprint for m in members for p in m.promised_partitions}
        decision = next(iter(promised.values()), "")
        if decision != self._decision:
            self._decision, self._promised_after = decision, self._observed_at
            self._wait_until = now + MAX_RELEASE_WAIT_S
        self._observed_at = wall_time
        if now >= self._wait_until:
            return frozenset()
        return frozenset(p for p in promised if not self._is_released(commit_metadata.get(p, "")))

    def _is_released(self, metadata: str) -> bool:
        with suppress(ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            body: Any = json.loads(metadata.rstrip("\0"))  # kafka-python reads the terminator, too
            if str(body.get("round", "")).endswith(f":{self._decision}"):
                return True
            return float(body.get("at", -inf)) > self._promised_after
        return False
