"""SASL OAUTHBEARER: the application's `oauth_cb`, for both Kafka clients.

`oauth_cb` is confluent-kafka's: a function that takes `sasl.oauthbearer.config` and returns the
token and its end, in seconds since the epoch; two more values, principal and extensions, may
follow. In a file it is written "module:function". librdkafka asks it when a token is four fifths
over; kafka-python would ask for each connection, on the thread that heartbeats, so for that one a
token is kept while it is good.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from kafka.net.sasl.oauth import (
    AbstractTokenProvider,  # pyright: ignore[reportMissingImports] # pyright knows v2 only
)

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SaslAuthenticationError, SettingError

TokenCallback: TypeAlias = Callable[[str], tuple[Any, ...]]

OAUTH_CALLBACK_SETTING: Final = "oauth_cb"
TOKEN_RENEWAL_MARGIN_S: Final = 30.0
"""Seconds before its end at which a token is no longer used for new connections."""

EXTENSIONS_INDEX: Final = 3
"""Place of the extensions in what a callback returns."""


def load_token_callback(setting: Any) -> TokenCallback:
    """Return the function that a setting names, or is. Raises SettingError."""
    if callable(setting):
        return cast("TokenCallback", setting)
    module, _, name = str(setting).partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(
            f'{OAUTH_CALLBACK_SETTING}: {setting!r} cannot be loaded ({error}); write "module:function" with the '
            "module on PYTHONPATH"
        ) from None
    if not callable(found):
        raise SettingError(f"{OAUTH_CALLBACK_SETTING}: {setting!r} is not a function")
    return cast("TokenCallback", found)


def fetch_token(token_callback: TokenCallback, config: str, now: float) -> tuple[Any, ...]:
    """Ask for a token. Raises SaslAuthenticationError where there is none, or one that is over."""
    try:
        answer = token_callback(config)
        end = float(answer[1])
    except Exception as error:  # noqa: BLE001 - it is the application's own
        kind = type(error).__name__  # its text may hold what was sent
        raise SaslAuthenticationError(
            f"{OAUTH_CALLBACK_SETTING} gives no token ({kind}); it must return (token, seconds since the epoch)"
        ) from None
    if end <= now:
        raise SaslAuthenticationError(
            f"{OAUTH_CALLBACK_SETTING} gives a token that ended {now - end:.0f} s ago"
        )
    return answer


class CachedTokenProvider(AbstractTokenProvider):  # type: ignore[misc] # kafka-python has no types
    """Gives kafka-python the callback's tokens."""

    def __init__(
        self, token_callback: TokenCallback, config: str, clock: Clock | None = None
    ) -> None:
        super().__init__()
        self._token_callback = token_callback
        self._config = config
        self._clock = clock or SystemClock()
        self._cached_token: tuple[Any, ...] = ("", 0.0)

    def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        """Return a token that is good. Raises SaslAuthenticationError."""
        now = self._clock.wall()
        if float(self._cached_token[1]) - TOKEN_RENEWAL_MARGIN_S <= now:
            self._cached_token = fetch_token(self._token_callback, self._config, now)
        return str(self._cached_token[0])

    def extensions(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the SASL extensions that came with the token."""
        held = self._cached_token
        given: Mapping[str, str] = held[EXTENSIONS_INDEX] if len(held) > EXTENSIONS_INDEX else {}
        return dict(given or {})
