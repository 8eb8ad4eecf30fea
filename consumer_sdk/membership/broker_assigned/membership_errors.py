"""Errors after which librdkafka is no member of its group again (KIP-848)."""

from typing import Final

from confluent_kafka import KafkaError

from trimtab.consumer_sdk.client.settings import ConsumerSettings
from trimtab.consumer_sdk.errors import GroupMembershipError, MissingAclError

FATAL_ERROR_HINTS: Final = {
    KafkaError.GROUP_ID_NOT_FOUND: " (GROUP_ID_NOT_FOUND): the group has members of the classic protocol, "
    "and the broker does not convert it; trimtab doctor names what blocks it (docs/any-client.md)",
    KafkaError.UNRELEASED_INSTANCE_ID: ": another consumer of this group uses the same group.instance.id; "
    "give each consumer its own",
    KafkaError.UNSUPPORTED_ASSIGNOR: ": the broker's group.consumer.assignors lacks group.remote.assignor",
}


def to_membership_error(error: KafkaError, settings: ConsumerSettings) -> GroupMembershipError | None:
    """Return the error of an application whose librdkafka cannot be a member; None for other errors."""
    member = f"group {settings.group}, instance {settings.instance}"
    if _is_about(error, KafkaError.GROUP_AUTHORIZATION_FAILED):
        return MissingAclError(f"{member}: no permission to join; grant Read on group {settings.group}")
    if not error.fatal() and error.code() != KafkaError._FATAL:  # noqa: SLF001 - its public name
        return None
    hints = (hint for code, hint in FATAL_ERROR_HINTS.items() if _is_about(error, code))
    return GroupMembershipError(f"{member}: {error.str()}{next(hints, '')}; create this consumer again")


def _is_about(error: KafkaError, code: int) -> bool:
    # A fatal error has a code of its own, and the broker's error in its text.
    return error.code() == code or KafkaError(code).str() in error.str()
