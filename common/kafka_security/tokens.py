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
from trimtab.common.errors import LoginRefused, SettingError

Callback: TypeAlias = Callable[[str], tuple[Any, ...]]

SETTING: Final = "oauth_cb"
EARLY: Final = 30.0
"""Seconds before its end at which a token is no longer used for new connections."""

EXTENSIONS: Final = 3
"""Place of the extensions in what a callback returns."""


def callback(given: Any) -> Callback:
    """Return the function that a setting names, or is. Raises SettingError."""
    if callable(given):
        return cast("Callback", given)
    module, _, name = str(given).partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(
            f'{SETTING}: {given!r} cannot be loaded ({error}); write "module:function" with the '
            "module on PYTHONPATH"
        ) from None
    if not callable(found):
        raise SettingError(f"{SETTING}: {given!r} is not a function")
    return cast("Callback", found)


def fetched(ask: Callback, config: str, now: float) -> tuple[Any, ...]:
    """Ask for a token. Raises LoginRefused where there is none, or one that is over."""
    try:
        answer = ask(config)
        end = float(answer[1])
    except Exception as error:  # noqa: BLE001 - it is the application's own
        kind = type(error).__name__  # its text may hold what was sent
        raise LoginRefused(
            f"{SETTING} gives no token ({kind}); it must return (token, seconds since the epoch)"
        ) from None
    if end <= now:
        raise LoginRefused(f"{SETTING} gives a token that ended {now - end:.0f} s ago")
    return answer


class Tokens(AbstractTokenProvider):  # type: ignore[misc] # kafka-python has no types
    """Gives kafka-python the callback's tokens."""

    def __init__(self, ask: Callback, config: str, clock: Clock | None = None) -> None:
        super().__init__()
        self._ask = ask
        self._config = config
        self._clock = clock or SystemClock()
        self._held: tuple[Any, ...] = ("", 0.0)

    def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        """Return a token that is good. Raises LoginRefused."""
        now = self._clock.wall()
        if float(self._held[1]) - EARLY <= now:
            self._held = fetched(self._ask, self._config, now)
        return str(self._held[0])

    def extensions(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the SASL extensions that came with the token."""
        held = self._held
        given: Mapping[str, str] = held[EXTENSIONS] if len(held) > EXTENSIONS else {}
        return dict(given or {})
