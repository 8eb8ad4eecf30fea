"""kafka-python's source of SASL OAUTHBEARER tokens; apart from `tokens`, which librdkafka uses alone."""

from collections.abc import Mapping
from typing import Any

from kafka.net.sasl.oauth import (
    AbstractTokenProvider,  # pyright: ignore[reportMissingImports] # pyright knows v2 only
)

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.kafka_security.tokens import (
    EXTENSIONS_INDEX,
    TOKEN_RENEWAL_MARGIN_S,
    TokenCallback,
    fetch_token,
)


class CachedTokenProvider(AbstractTokenProvider):  # type: ignore[misc] # kafka-python has no types
    """Token provider for kafka-python; caches the token until shortly before its expiry."""

    def __init__(self, token_callback: TokenCallback, config: str, clock: Clock | None = None) -> None:
        super().__init__()
        self._token_callback = token_callback
        self._config = config
        self._clock = clock or SystemClock()
        self._cached_token: tuple[Any, ...] = ("", 0.0)

    def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        """Return a valid token. Raises SaslAuthenticationError."""
        now = self._clock.wall()
        # kafka-python asks for each connection, on the heartbeat thread; librdkafka caches by itself
        if float(self._cached_token[1]) - TOKEN_RENEWAL_MARGIN_S <= now:
            self._cached_token = fetch_token(self._token_callback, self._config, now)
        return str(self._cached_token[0])

    def extensions(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the SASL extensions that came with the token (KIP-342)."""
        given: Mapping[str, str] | None = next(iter(self._cached_token[EXTENSIONS_INDEX:]), None)
        return dict(given or {})
