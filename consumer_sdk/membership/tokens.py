"""SASL OAUTHBEARER: gives kafka-python the tokens of the application's `oauth_cb`."""

from collections.abc import Callable
from typing import Any

from kafka.net.sasl.oauth import (
    AbstractTokenProvider,  # pyright: ignore[reportMissingImports] # pyright knows v2 only
)


class Tokens(AbstractTokenProvider):  # type: ignore[misc] # kafka-python has no types
    """Asks the callback for each connection; it takes the OAuth config, returns (token, expiry)."""

    def __init__(self, callback: Callable[[str], tuple[Any, ...]], config: str) -> None:
        super().__init__()
        self._callback = callback
        self._config = config

    def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        """Return a token; its expiry matters to librdkafka only."""
        return str(self._callback(self._config)[0])
