"""Errors of the testing kit.

HandlerHistoryError   a handler missed or repeated records in a simulated history (an AssertionError)
"""

from collections.abc import Sequence


class HandlerHistoryError(AssertionError):
    """A handler missed or repeated records; `findings` has a line for each, with its seed."""

    def __init__(self, message: str, findings: Sequence[str]) -> None:
        super().__init__(message)
        self.findings = tuple(findings)
