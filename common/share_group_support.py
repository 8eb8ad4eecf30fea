"""Detect share groups (KIP-932) from the features that brokers announce."""

from collections.abc import Mapping
from typing import Any, Final

SHARE_VERSION_FEATURE: Final = "share.version"


def explain_missing_share_groups(features: Mapping[str, Mapping[str, Any]], where: str) -> str | None:
    """Explain why the brokers at `where` lack share groups, with a remedy; None if they have them."""
    feature = features.get(SHARE_VERSION_FEATURE, {})  # supported and finalized: (min, max version)
    if not feature.get("supported"):
        return (
            f"the brokers at {where} have no share groups: Kafka 4.2 and later have them; upgrade "
            "them, or use a queue of kind 'kmq', which any broker serves"
        )
    # a cluster that was upgraded keeps a feature at its old level until kafka-features.sh raises it (KIP-584)
    if feature.get("finalized", (0, 0))[1] < 1:
        return (
            f"the brokers at {where} have share groups switched off ({SHARE_VERSION_FEATURE}=0): "
            f"switch them on (kafka-features.sh upgrade --feature {SHARE_VERSION_FEATURE}=1), or "
            "use a queue of kind 'kmq'"
        )
    return None
