"""The link to a group's coordinator: whether it is known, and which requests await its answers.

Rule 19 of a classic member: the coordinator is looked up before the first request, and again after
NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, a broken connection or a late answer, with pauses between
failures. The membership outlasts that.
"""

from math import inf
from random import Random
from typing import Final

from trimtab.common.kafka_protocol.apis import FIND_COORDINATOR, Api
from trimtab.consumer_sdk.membership.machine.values import MemberRequest

RETRY_PAUSE_S: Final = 0.1  # doubled by each failure in a row to reach the coordinator
MAX_RETRY_PAUSE_S: Final = 1.0


class CoordinatorLink:
    """Open requests, and when to try again after a failure."""

    def __init__(self, random: Random) -> None:
        self.is_known = False
        self.retry_at = -inf
        self._failures = 0  # to reach the coordinator, in a row
        self._open: list[MemberRequest] = []
        self._random = random

    def add(self, request: MemberRequest) -> None:
        """Record a request that is sent now."""
        self._open.append(request)

    def close(self, request: MemberRequest) -> bool:
        """Record the answer to a request; return whether it was still awaited."""
        if request not in self._open:
            return False
        self._open.remove(request)
        if request.api is not FIND_COORDINATOR:
            self._failures = 0
        return True

    def is_open(self, api: Api) -> bool:
        """Return whether such a request awaits its answer."""
        return any(one.api is api for one in self._open)

    def answer_by(self) -> float:
        """Return when the first open request is late; possibly never."""
        return min((one.answer_by for one in self._open), default=inf)

    def find_late(self, now: float) -> MemberRequest | None:
        """Return an open request that is late."""
        return next((one for one in self._open if one.answer_by <= now), None)

    def drop(self) -> list[MemberRequest]:
        """Abandon the open requests, and return them."""
        dropped, self._open = self._open, []
        return dropped

    def lose(self, now: float) -> None:
        """Look the coordinator up again, after a pause that grows with the failures in a row."""
        self.is_known = False
        self._failures += 1
        self.pause(now, min(MAX_RETRY_PAUSE_S, RETRY_PAUSE_S * 2 ** min(self._failures - 1, 10)))

    def pause(self, now: float, seconds: float) -> None:
        """Try again after about so many seconds."""
        self.retry_at = now + seconds * self._random.uniform(0.8, 1.2)
