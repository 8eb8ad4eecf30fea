"""How far a decision is from the best one: bounds by column generation (extra `certify`)."""

from trimtab.assignor.analysis.certificate.certificate import (
    Certificate,
    certify,
    certify_all,
    certify_moves,
    countdown,
)
from trimtab.assignor.analysis.certificate.sizing import certify_sizes

__all__ = [
    "Certificate",
    "certify",
    "certify_all",
    "certify_moves",
    "certify_sizes",
    "countdown",
]
