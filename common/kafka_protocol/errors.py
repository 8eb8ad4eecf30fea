"""Errors of requests to brokers: one tree, with Kafka's own names for the codes of responses."""

from typing import Any, ClassVar, Final

from confluent_kafka import KafkaError as _LibrdkafkaError

from trimtab.common.errors import PeerError

# https://kafka.apache.org/protocol#protocol_error_codes: those that a later try may not meet, which
# requests of this package can get
_RETRYABLE_CODES: Final = frozenset(
    {3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 74, 75, 78, 89, 100, 103, 106}
)


class KafkaRequestError(PeerError):
    """A request to a broker failed; base of the errors of this package."""


class ConnectionFailedError(KafkaRequestError):
    """No broker could be reached, or the connection broke."""

    retryable: ClassVar[bool] = True


class RequestTimeoutError(KafkaRequestError):
    """A broker did not answer in time."""

    retryable: ClassVar[bool] = True


class RequestAbortedError(KafkaRequestError):
    """The caller stopped waiting."""


class MalformedMessageError(KafkaRequestError):
    """A broker's bytes are no answer to the request."""


class UnsupportedApiError(KafkaRequestError):
    """The broker is too old, or too new, for a request."""


class LoginFailedError(KafkaRequestError):
    """The broker refused the SASL login, or no token was available."""


class ErrorResponseError(KafkaRequestError):
    """A response with an error code; frequent codes have subclasses."""

    code: int = -1
    by_code: ClassVar[dict[int, type["ErrorResponseError"]]] = {}

    def __init_subclass__(cls, code: int, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.code = code
        cls.by_code[code] = cls

    def __init__(self, text: str = "", code: int | None = None) -> None:
        if code is not None:
            self.code = code
        self.__dict__["retryable"] = self.code in _RETRYABLE_CODES  # of the code, not of the class
        super().__init__(": ".join(filter(None, (name_code(self.code), text))))


class UnknownTopicError(ErrorResponseError, code=3):
    """No topic or partition of that name exists."""


class NotLeaderError(ErrorResponseError, code=6):
    """The partition's leader has moved."""


class CoordinatorLoadingError(ErrorResponseError, code=14):
    """The coordinator is still reading the group."""


class CoordinatorUnavailableError(ErrorResponseError, code=15):
    """The group has no coordinator at the moment."""


class NotCoordinatorError(ErrorResponseError, code=16):
    """The coordinator has moved."""


class IllegalGenerationError(ErrorResponseError, code=22):
    """The group has begun another generation."""


class InconsistentGroupProtocolError(ErrorResponseError, code=23):
    """The group's members have no assignor in common."""


class UnknownMemberError(ErrorResponseError, code=25):
    """The group does not know the member."""


class RebalanceInProgressError(ErrorResponseError, code=27):
    """The group waits for its members to join."""


class TopicDeniedError(ErrorResponseError, code=29):
    """An ACL on the topic is missing."""


class GroupDeniedError(ErrorResponseError, code=30):
    """An ACL on the group is missing."""


class ClusterDeniedError(ErrorResponseError, code=31):
    """An ACL on the cluster is missing."""


class GroupNotFoundError(ErrorResponseError, code=69):
    """No group of that type and name exists."""


class FencedInstanceError(ErrorResponseError, code=82):
    """Another member has taken the static member's place."""


class UnsupportedAssignorError(ErrorResponseError, code=112):
    """The brokers have no assignor of that name."""


def make_error(code: int, text: str = "") -> ErrorResponseError:
    """Return the error of a response's code."""
    return ErrorResponseError.by_code.get(code, ErrorResponseError)(text, code)


def raise_for_code(code: int, text: str | None = "") -> None:
    """Raise the error of a response's code; return for 0."""
    if code:
        raise make_error(code, text or "")


def name_code(code: int) -> str:
    """Return Kafka's name of an error code."""
    name: str = _LibrdkafkaError(code).name()
    return name if not name.startswith("ERR_") else f"error {code}"
