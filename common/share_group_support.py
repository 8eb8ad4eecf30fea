"""Whether brokers have share groups (KIP-932), by the features that they tell of. Pure."""

from collections.abc import Mapping
from typing import Any, Final

SHARE_VERSION_FEATURE: Final = "share.version"


def explain_missing_share_groups(
    features: Mapping[str, Mapping[str, Any]], where: str
) -> str | None:
    """Say why the brokers at `where` have no share groups, and what to do; None where they do.

    Of each feature there may be `supported` and `finalized`, each a least and a highest version.
    """
    found = features.get(SHARE_VERSION_FEATURE, {})
    if not found.get("supported"):
        return (
            f"the brokers at {where} have no share groups: Kafka 4.2 and later have them; upgrade "
            "them, or use a queue of kind 'kmq', which any broker serves"
        )
    if found.get("finalized", (0, 0))[1] < 1:
        return (
            f"the brokers at {where} have share groups switched off ({SHARE_VERSION_FEATURE}=0): switch them on "
            f"(kafka-features.sh upgrade --feature {SHARE_VERSION_FEATURE}=1), or use a queue of kind 'kmq'"
        )
    return None
