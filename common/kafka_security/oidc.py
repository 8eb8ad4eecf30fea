"""SASL OAUTHBEARER tokens of an OIDC provider, by the client credentials grant (KIP-768, RFC 6749 4.4).

1. All Kafka clients of a process with the same settings share one source, and so its token.
2. A token is renewed after 80 % of its lifetime; it is used to its end while renewals fail.
3. The endpoint is asked at most every `RETRY_DELAY_S` after a failure, by one request at a time.
4. Whatever the endpoint answers, and however slowly: the caller gets a token or a TokenEndpointError.
5. Errors name the endpoint; its answer may repeat the secret and is never shown.
"""

import json
import logging
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http.client import HTTPException
from math import isfinite
from ssl import SSLCertVerificationError
from threading import Lock, Thread
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import OpenerDirector, Request

from trimtab.common import tls
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SettingError, TokenEndpointError, TokenEndpointUnavailableError
from trimtab.common.http_client import build_http_opener, read_bounded

log = logging.getLogger("trimtab.oidc")

_PREFIX: Final = "sasl.oauthbearer."
METHOD_SETTING: Final = f"{_PREFIX}method"
OIDC_SETTINGS: Final = frozenset(
    {
        "https.ca.location",
        "https.ca.pem",
        *(
            f"{_PREFIX}{name}"
            for name in (
                "client.credentials.client.id", "client.credentials.client.secret", "client.id",
                "client.secret", "extensions", "grant.type", "method", "scope", "token.endpoint.url",
            )
        ),
    }
)  # fmt: skip
"""librdkafka's settings of OIDC; this module handles them for both clients."""

REQUEST_TIMEOUT_S: Final = 5.0  # confluent-kafka waits 10 s for the first token
RETRY_DELAY_S: Final = 10.0  # as librdkafka after a failed refresh
RENEWAL_POINT: Final = 0.8  # of a token's lifetime, as librdkafka's refresh
MAX_LIFETIME_S: Final = 86_400.0  # a token that lives longer is renewed daily
MAX_ANSWER_BYTES: Final = 1 << 18
_RETRYABLE_STATUSES: Final = frozenset({408, 425, 429})  # and 5xx
_ERROR_CODES: Final = frozenset(
    {
        "invalid_client", "invalid_grant", "invalid_request", "invalid_scope", "unauthorized_client",
        "unsupported_grant_type",
    }
)  # fmt: skip # RFC 6749 5.2
_URL: Final = re.compile(r"https?://[\x21-\x7e]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 2.1
_EXTENSION: Final = re.compile(r"([A-Za-z]+)=([\x20-\x7e]+)")  # RFC 7628 3.1


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """A client of a token endpoint; `endpoint` is its URL."""

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    ca_location: str = ""
    ca_pem: str = ""

    @property
    def shown_endpoint(self) -> str:
        """The endpoint without its query, which may hold a key."""
        return self.endpoint.partition("?")[0]


def uses_oidc(config: Mapping[str, Any]) -> bool:
    """Return whether the tokens come from an OIDC provider. Raises SettingError."""
    method = str(config.get(METHOD_SETTING) or "default").lower()
    if method not in ("default", "oidc"):
        raise SettingError(f"{METHOD_SETTING}={method!r} is none of default, oidc")
    return method == "oidc"


def parse_oidc_settings(config: Mapping[str, Any]) -> OidcSettings:
    """Return the settings of a token endpoint. Raises SettingError."""
    grant = str(config.get(f"{_PREFIX}grant.type") or "client_credentials")
    if grant != "client_credentials":
        raise SettingError(f"{_PREFIX}grant.type={grant!r} cannot be used: write client_credentials")
    if config.get("https.ca.pem") and config.get("https.ca.location"):
        raise SettingError("https.ca.pem and https.ca.location are both given; leave one of the two out")
    return OidcSettings(
        _parse_endpoint(_require(config, "token.endpoint.url")),
        _require(config, "client.id"),
        _require(config, "client.secret"),
        str(config.get(f"{_PREFIX}scope") or ""),
        _parse_extensions(str(config.get(f"{_PREFIX}extensions") or "")),
        str(config.get("https.ca.location") or ""),
        str(config.get("https.ca.pem") or ""),
    )


def _require(config: Mapping[str, Any], name: str) -> str:
    # librdkafka has two names for id and secret (KIP-1139)
    value = config.get(_PREFIX + name) or config.get(f"{_PREFIX}client.credentials.{name}")
    if not value:
        raise SettingError(f"{METHOD_SETTING}=oidc needs {_PREFIX}{name}")
    return str(value)


def _parse_endpoint(url: str) -> str:
    with suppress(ValueError):  # of a port
        parts = urlsplit(url)
        is_plain = bool(_URL.fullmatch(url)) and "@" not in parts.netloc
        if is_plain and parts.hostname and parts.port != 0:
            return url
    # without the value, which may hold a password
    raise SettingError(f"{_PREFIX}token.endpoint.url is no URL like https://HOST[:PORT]/PATH")


def _parse_extensions(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [_EXTENSION.fullmatch(pair.strip()) for pair in text.split(",") if pair.strip()]
    if any(pair is None or pair[1].lower() == "auth" for pair in pairs):
        raise SettingError(
            f"{_PREFIX}extensions are not like name=value,name=value with letters only in each name, "
            "which may not be auth"
        )
    return tuple((pair[1], pair[2]) for pair in pairs if pair)


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """An access token; `issued` and `end` are monotonic seconds: the machine's clock may be set."""

    text: str
    issued: float
    end: float


@lru_cache(maxsize=64)
def get_token_source(settings: OidcSettings) -> "OidcTokenSource":
    """Return the process's token source of these settings. Raises SettingError."""
    return OidcTokenSource(settings)


class OidcTokenSource:
    """A callback for `oauth_cb` that caches the token. Raises TokenEndpointError when called."""

    def __init__(self, settings: OidcSettings, clock: Clock | None = None) -> None:
        if settings.endpoint.startswith("http:"):
            log.warning("%s: the client's secret is sent unencrypted; write https", settings.shown_endpoint)
        self._settings = settings
        self._clock = clock or SystemClock()
        self._fetch = partial(_fetch_token, _build_opener(settings), settings, self._clock)
        self._lock = Lock()
        self._pending: Future[IssuedToken] | None = None
        self._token = IssuedToken("", float("-inf"), float("-inf"))
        self._next_request = float("-inf")
        self._error: TokenEndpointError | None = None

    def __call__(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """Return token, expiry in seconds since the epoch, principal and SASL extensions (KIP-342)."""
        with self._lock:
            for _ in range(2):  # the token of a late answer may be due for renewal itself
                if self._clock.monotonic() >= self._next_request:
                    self._renew()
            token, error = self._token, self._error
        remaining = token.end - self._clock.monotonic()
        if remaining <= 0:
            error = error or self._unavailable("gives tokens that end before they arrive")
            raise type(error)(str(error))  # a new one: each raise adds to an error's traceback
        expiry = self._clock.wall() + remaining
        return token.text, expiry, self._settings.client_id, dict(self._settings.extensions)

    def _renew(self) -> None:
        try:
            self._token = self._await_token()
        except TokenEndpointError as error:
            if self._token.text and str(error) != str(self._error):  # the first token's error ends the start
                log.warning("No new token: %s", error)
            self._error = error
            self._next_request = self._clock.monotonic() + RETRY_DELAY_S
        else:
            self._error = None
            lifetime = self._token.end - self._token.issued
            self._next_request = self._token.issued + RENEWAL_POINT * lifetime

    def _await_token(self) -> IssuedToken:
        # in a thread: name resolution has no timeout, and an endpoint can send a byte at a time
        pending = self._pending = self._pending or _start_thread(self._fetch)
        try:
            return pending.result(REQUEST_TIMEOUT_S)
        except TimeoutError:
            raise self._unavailable(f"does not answer within {REQUEST_TIMEOUT_S:g} s") from None
        finally:
            if pending.done():  # else the next call waits for this answer
                self._pending = None

    def _unavailable(self, what: str) -> TokenEndpointError:
        place = f"the token endpoint {self._settings.shown_endpoint}"
        return TokenEndpointUnavailableError(f"{place} {what}; check the URL, and the provider's log")


def _start_thread(fetch: Callable[[], IssuedToken]) -> Future[IssuedToken]:
    future: Future[IssuedToken] = Future()

    def run() -> None:
        try:
            future.set_result(fetch())
        except Exception as error:  # noqa: BLE001 - raised by the caller
            future.set_exception(error)

    Thread(target=run, daemon=True, name="trimtab-oidc").start()  # never holds up the process's exit
    return future


def _build_opener(settings: OidcSettings) -> OpenerDirector:
    trust = {"ssl.ca.location": settings.ca_location, "ssl.ca.pem": settings.ca_pem}
    try:
        context = tls.create_client_context({name: value for name, value in trust.items() if value})
    except SettingError as error:
        raise SettingError(str(error).replace("ssl.ca.", "https.ca.")) from None
    return build_http_opener(context)


def _fetch_token(opener: OpenerDirector, settings: OidcSettings, clock: Clock) -> IssuedToken:
    place = f"the token endpoint {settings.shown_endpoint}"
    issued = clock.monotonic()  # before the request, so that the end is never too late
    try:
        with opener.open(_build_request(settings), timeout=REQUEST_TIMEOUT_S) as response:
            body = read_bounded(response, MAX_ANSWER_BYTES)
    except HTTPError as error:
        with error:
            raise _to_endpoint_error(place, error) from None
    except Exception as error:  # noqa: BLE001 - urllib's errors have no base class
        raise _to_connection_error(place, error) from None
    return _parse_answer(place, body, issued)


def _build_request(settings: OidcSettings) -> Request:
    form = {"grant_type": "client_credentials", **({"scope": settings.scope} if settings.scope else {})}
    # id and secret as they are, like librdkafka and Kafka (sasl.oauthbearer.header.urlencode=false)
    login = b64encode(f"{settings.client_id}:{settings.client_secret}".encode()).decode()
    headers = {"Accept": "application/json", "Authorization": f"Basic {login}"}
    return Request(settings.endpoint, urlencode(form).encode(), headers, method="POST")  # noqa: S310 - http(s)


def _to_endpoint_error(place: str, error: HTTPError) -> TokenEndpointError:
    if error.code in _RETRYABLE_STATUSES or error.code >= 500:  # noqa: PLR2004 - server errors
        return TokenEndpointUnavailableError(f"{place} answers with HTTP {error.code}; see its log")
    if error.code < 400:  # noqa: PLR2004 - redirects
        return TokenEndpointError(
            f"{place} redirects (HTTP {error.code}), which is not followed; write the URL it leads to"
        )
    answer: Any = None
    with suppress(OSError, HTTPException, ValueError, RecursionError):
        answer = json.loads(read_bounded(error, MAX_ANSWER_BYTES))
    code = answer.get("error") if isinstance(answer, dict) else None
    shown = f", {code}" if isinstance(code, str) and code in _ERROR_CODES else ""
    return TokenEndpointError(
        f"{place} refuses the client (HTTP {error.code}{shown}); correct sasl.oauthbearer.client.id, "
        "client.secret or scope"
    )


def _to_connection_error(place: str, error: Exception) -> TokenEndpointError:
    reason = getattr(error, "reason", None)  # urllib wraps the socket's error
    if isinstance(reason, SSLCertVerificationError):
        return TokenEndpointError(
            f"the certificate of {place} is not trusted: {reason.verify_message.rstrip('.')}; it must be "
            "signed by https.ca.location (or https.ca.pem; default: the system's authorities)"
        )
    # else the type: a text may repeat what the endpoint sent
    text = (reason.strerror if isinstance(reason, OSError) else None) or type(error).__name__
    return TokenEndpointUnavailableError(f"{place} cannot be reached: {text}; check the URL and the network")


def _parse_answer(place: str, body: bytearray, issued: float) -> IssuedToken:
    problem = f"more than {MAX_ANSWER_BYTES} bytes"
    if len(body) <= MAX_ANSWER_BYTES:
        try:
            answer = json.loads(body)
            text, lifetime = answer["access_token"], float(answer["expires_in"])
        except KeyError as error:
            problem = f"no {error.args[0]}"
        except (ValueError, TypeError, OverflowError, RecursionError):
            problem = "no JSON object with access_token and expires_in (seconds)"
        else:
            if isinstance(text, str) and _TOKEN.fullmatch(text) and isfinite(lifetime) and lifetime >= 1:
                return IssuedToken(text, issued, issued + min(lifetime, MAX_LIFETIME_S))
            problem = "no bearer token (RFC 6750), or an expires_in that is no number from 1 s"
    raise TokenEndpointError(
        f"{place} answers with {problem}; check that the URL is that of OAuth's token endpoint"
    )
