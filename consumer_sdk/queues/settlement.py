"""Settlement of a message: the request (`ack`, `retry`, `reject`, `extend`) and its result."""

import math
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from trimtab.consumer_sdk.errors import InvalidDelayError


class SettlementResult(StrEnum):
    """Result of an `ack`, `retry`, `reject` or `extend`."""

    DONE = "done"
    LATE = "late"  # after the deadline: it may have been redelivered; harmless, and logged
    REPEATED = "repeated"  # settled before; the call had no effect


class SettlementAction(Enum):
    """Method that the application called on a message."""

    ACK = "ack"
    RETRY = "retry"
    REJECT = "reject"
    EXTEND = "extend"


@dataclass(frozen=True, slots=True)
class SettlementRequest:
    """An action, the seconds of its delay or extension, and its reason."""

    action: SettlementAction
    seconds: float = 0.0
    reason: str = ""


ACK_REQUEST = SettlementRequest(SettlementAction.ACK)


def check_delay(seconds: float) -> float:
    """Return the seconds if finite and not negative, also in ms. Raises InvalidDelayError."""
    if not 0 <= seconds * 1000 < math.inf:  # false for NaN
        raise InvalidDelayError(seconds)
    return float(seconds)


def reason_to_text(reason: object) -> str:
    """Return a reason as text that can be encoded as UTF-8."""
    # A path with surrogate escapes is legal as str, but would stop the tracker's JSON codec.
    return str(reason).encode(errors="replace").decode()


# States of a message in a `bytearray` that its batch shares: one byte for each message.
UNSETTLED: Final = 0
ACKNOWLEDGED: Final = 1
SETTLED_OTHERWISE: Final = 2
