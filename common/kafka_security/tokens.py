"""SASL OAUTHBEARER tokens from `oauth_cb`, for both Kafka clients.

`oauth_cb` is confluent-kafka's callback: it takes `sasl.oauthbearer.config` and returns the token
and its expiry in seconds since the epoch, optionally followed by principal and extensions.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SaslAuthenticationError, SettingError, TokenEndpointError

TokenCallback: TypeAlias = Callable[[str], tuple[Any, ...]]

OAUTH_CALLBACK_SETTING: Final = "oauth_cb"
TOKEN_RENEWAL_MARGIN_S: Final = 30.0  # a token must not expire between here and the broker's check
EXTENSIONS_INDEX: Final = 3  # in the callback's result


def load_token_callback(setting: Any) -> TokenCallback:
    """Return the function of a setting: a callable or "module:function". Raises SettingError."""
    if callable(setting):
        return cast("TokenCallback", setting)
    module, _, name = str(setting).partition(":")  # YAML holds no function
    try:
        callback: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(
            f"{OAUTH_CALLBACK_SETTING}: {setting!r} cannot be loaded ({error}); write "
            '"module:function" with the module on PYTHONPATH'
        ) from None
    if not callable(callback):
        raise SettingError(f"{OAUTH_CALLBACK_SETTING}: {setting!r} is not a function")
    return cast("TokenCallback", callback)


def fetch_token(token_callback: TokenCallback, config: str, now: float) -> tuple[Any, ...]:
    """Call the callback. Raises SaslAuthenticationError if it fails or its token has expired."""
    try:
        answer = token_callback(config)
        end = float(answer[1])
    except TokenEndpointError:
        raise  # ours: it names the endpoint, and holds no credentials
    except Exception as error:  # noqa: BLE001 - application code
        kind = type(error).__name__  # the error's text may hold credentials
        raise SaslAuthenticationError(
            f"{OAUTH_CALLBACK_SETTING} gives no token ({kind}); it must return (token, seconds "
            "since the epoch)"
        ) from None
    if end <= now:
        raise SaslAuthenticationError(
            f"{OAUTH_CALLBACK_SETTING} gives a token that ended {now - end:.0f} s ago"
        )
    return answer


class CachedToken:
    """The last token, until shortly before its end; for clients that ask for it at each connection."""

    def __init__(self, token_callback: TokenCallback, config: str, clock: Clock | None = None) -> None:
        super().__init__()
        self._token_callback = token_callback
        self._config = config
        self._clock = clock or SystemClock()
        self._cached_token: tuple[Any, ...] = ("", 0.0)

    def token(self) -> str:
        """Return a valid token. Raises SaslAuthenticationError."""
        now = self._clock.wall()
        if float(self._cached_token[1]) - TOKEN_RENEWAL_MARGIN_S <= now:
            self._cached_token = fetch_token(self._token_callback, self._config, now)
        return str(self._cached_token[0])

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions that came with the token (KIP-342)."""
        given: Mapping[str, str] | None = next(iter(self._cached_token[EXTENSIONS_INDEX:]), None)
        return dict(given or {})
