"""Errors of the testing kit.

ContainerBrokerError  Kafka's container did not answer (a PeerError)
HandlerHistoryError   a handler missed or repeated records in a simulated history (an AssertionError)
"""

from collections.abc import Sequence

from trimtab.common.errors import PeerError


class ContainerBrokerError(PeerError):
    """The broker in a container did not answer in time; `log` holds the last lines of the container."""

    def __init__(self, image: str, seconds: float, log: str) -> None:
        super().__init__(
            f"the broker of image {image} did not answer within {seconds:g} s; the end of its log:\n{log}"
        )
        self.log = log


class HandlerHistoryError(AssertionError):
    """A handler missed or repeated records; `findings` has a line for each, with its seed."""

    def __init__(self, message: str, findings: Sequence[str]) -> None:
        super().__init__(message)
        self.findings = tuple(findings)
