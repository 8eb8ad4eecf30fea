"""What can be said of a message, and what became of it.

A message is settled once: `ack`, `retry` or `reject`.
"""

import math
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from trimtab.consumer_sdk.errors import InvalidDelayError


class SettlementResult(StrEnum):
    """What became of an `ack`, `retry`, `reject` or `extend`."""

    DONE = "done"
    LATE = "late"
    """After the deadline: the message may have been delivered again; harmless, and logged."""
    REPEATED = "repeated"
    """The message was settled before; nothing happened."""


class SettlementAction(Enum):
    """What is said of a message."""

    ACK = "ack"
    RETRY = "retry"
    REJECT = "reject"
    EXTEND = "extend"


@dataclass(frozen=True, slots=True)
class SettlementRequest:
    """A verb with what belongs to it: seconds of a delay or an extension, the reason given."""

    action: SettlementAction
    seconds: float = 0.0
    reason: str = ""


ACK_REQUEST = SettlementRequest(SettlementAction.ACK)


def check_delay(seconds: float) -> float:
    """Return seconds to wait, which a marker can tell in milliseconds. Raises InvalidDelayError."""
    if not 0 <= seconds * 1000 < math.inf:  # NaN is neither
        raise InvalidDelayError(seconds)
    return float(seconds)


def reason_to_text(reason: object) -> str:
    """Return a reason as text that can be written: a broken path in it must not stop a tracker."""
    return str(reason).encode(errors="replace").decode()


UNSETTLED: Final = 0
ACKNOWLEDGED: Final = 1
SETTLED_OTHERWISE: Final = 2
"""What a board says of a message: in work, acknowledged, settled in another way."""
