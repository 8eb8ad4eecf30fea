"""Bounds on the cost of decisions by column generation (extra `certify`)."""

from trimtab.assignor.analysis.optimality.certificate import (
    Certificate,
    certify_decision,
    certify_decisions,
    certify_moves,
    start_countdown,
)
from trimtab.assignor.analysis.optimality.sizing import certify_sizes

__all__ = [
    "Certificate",
    "certify_decision",
    "certify_decisions",
    "certify_moves",
    "certify_sizes",
    "start_countdown",
]
