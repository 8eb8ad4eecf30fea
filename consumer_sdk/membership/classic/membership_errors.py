"""Errors after which kafka-python is no member of its group."""

from kafka.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    TopicAuthorizationFailedError,
)

from trimtab.consumer_sdk.client.settings import ConsumerSettings
from trimtab.consumer_sdk.errors import GroupMembershipError, MissingAclError


def describe_error(error: Exception) -> str:
    """Return the error's type and text, the type once."""
    text, kind = str(error), type(error).__name__
    return text if text.startswith(kind) else f"{kind}: {text}".rstrip(": ")


def to_membership_error(error: Exception, settings: ConsumerSettings) -> GroupMembershipError:
    """Return the error of an application whose kafka-python cannot be a member."""
    member = f"group {settings.group}, instance {settings.instance}"
    if isinstance(error, GroupAuthorizationFailedError):
        return MissingAclError(f"{member}: no permission to join; grant Read on group {settings.group}")
    if isinstance(error, TopicAuthorizationFailedError):
        denied = f"topic {', '.join(sorted(map(str, error.args[0] if error.args else ())))}"
        return MissingAclError(f"{member}: no permission to read {denied}; grant Read on {denied}")
    hint = ""
    if isinstance(error, FencedInstanceIdError):
        hint = "; another consumer of this group uses the same group.instance.id: give each consumer its own"
    if isinstance(error, InconsistentGroupProtocolError):
        hint = (
            "; its members use another assignor: stop them first, or upgrade one by one with "
            'partition.assignment.strategy="trimtab,cooperative-sticky"'
        )
    return GroupMembershipError(f"{member}: {describe_error(error)}{hint}")
