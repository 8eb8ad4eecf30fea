"""Tokens by OIDC's client credentials: settings, the request, renewal, hostile answers."""

import json
import logging
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any
from urllib.parse import parse_qs

import pytest

from cluster import keys
from support.ticking import Ticking
from support.token_endpoint import SECRET, serve_tokens
from trimtab.common import tls
from trimtab.common.errors import (
    SaslAuthenticationError,
    SettingError,
    TokenEndpointError,
    TokenEndpointUnavailableError,
)
from trimtab.common.kafka_security import client_config, oidc
from trimtab.common.kafka_security.oidc import OidcTokenSource, parse_oidc_settings
from trimtab.common.kafka_security.secrets import is_secret
from trimtab.consumer_sdk.client.settings import parse_consumer_settings

OIDC = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "OIDC",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    "sasl.oauthbearer.grant.type": "client_credentials",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
}


def token(number: int, lifetime: Any = 100) -> tuple[int, dict[str, str], bytes]:
    """Return the answer with token-1, token-2…"""
    return 200, {}, json.dumps({"access_token": f"token-{number}", "expires_in": lifetime}).encode()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sasl.oauthbearer.method": "other"}, "'other' is none of default, oidc"),
        ({"sasl.oauthbearer.method": "default"}, "but not sasl.oauthbearer.method: oidc"),
        ({"sasl.oauthbearer.grant.type": "jwt-bearer"}, "write client_credentials"),
        ({"sasl.oauthbearer.client.credentials.client.id": ""}, "oidc needs sasl.oauthbearer.client.id"),
        ({"sasl.oauthbearer.client.credentials.client.secret": ""}, "needs sasl.oauthbearer.client.secret"),
        ({"oauth_cb": "a:b"}, "oauth_cb are both given"),
        ({"security.protocol": "PLAINTEXT"}, "no client would log in"),
        ({"https.ca.location": "/nowhere"}, "https.ca.location /nowhere cannot be used: No such file"),
        ({"https.ca.pem": "x", "https.ca.location": "y"}, "leave one of the two out"),
        *(
            ({"sasl.oauthbearer.token.endpoint.url": url}, "is no URL like https://HOST")
            for url in ("idp/token", "file:///etc/passwd", "https:///x", "https://me:hunter2@idp/x",
                        "https://idp:99999/x", "https://idp/a b", "https://idp/\r\nHost: x")
        ),
        *(
            ({"sasl.oauthbearer.extensions": text}, "extensions are not like name=value")
            for text in ("a", "a=", "1=2", "auth=x", "a=b\x01c=d", "a=b,=")
        ),
    ],
)  # fmt: skip
def test_settings_are_checked(change: dict[str, str], text: str) -> None:
    """Before any connection, naming the setting without the secret."""
    client_config.check_settings(OIDC)
    with pytest.raises(SettingError, match=text.replace("(", "[(]")) as caught:
        client_config.check_settings(OIDC | change)
    assert "hunter2" not in str(caught.value)


def test_both_clients_share_one_token() -> None:
    """librdkafka gets a callback in place of the settings, kafka-python a provider; one request is made."""
    with serve_tokens(token) as endpoint:
        extra = {"sasl.oauthbearer.extensions": "tenant=blue, pool=p-1", "sasl.oauthbearer.scope": "a b"}
        given = {**endpoint.settings(), **extra, "bootstrap.servers": "b:1", "group.id": "g"}
        settings = parse_consumer_settings(given)
        assert not oidc.OIDC_SETTINGS.intersection(settings.librdkafka_config)
        text, _, principal, extensions = settings.librdkafka_config["oauth_cb"]("")
        provider = settings.kafka_python_config["sasl_oauth_token_provider"]
        assert (provider.token(), provider.extensions()) == (text, extensions)
        assert (text, principal, extensions) == ("token-1", "limited", {"tenant": "blue", "pool": "p-1"})
        again = client_config.to_librdkafka_config(settings.librdkafka_config)
        assert again["oauth_cb"] is settings.librdkafka_config["oauth_cb"]
    ((headers, body),) = endpoint.requests
    assert b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == f"limited:{SECRET}"
    assert parse_qs(body.decode()) == {"grant_type": ["client_credentials"], "scope": ["a b"]}


def test_the_secret_is_never_shown() -> None:
    """Its settings count as secrets; the values' repr leaves it out."""
    assert all(is_secret(name) for name in OIDC if name.endswith("client.secret"))
    settings = parse_oidc_settings(OIDC)
    assert "hunter2" not in repr(settings) + repr(OidcTokenSource(settings))


def test_a_token_is_renewed_before_it_ends() -> None:
    """After 80 % of its lifetime, in time for both clients; its expiry counts from the request."""
    clock = Ticking()
    with serve_tokens(token) as endpoint:
        source = OidcTokenSource(parse_oidc_settings(endpoint.settings()), clock)
        assert source("")[:2] == ("token-1", clock.wall() + 100)
        clock.now += 79.9
        assert source("")[:2] == ("token-1", pytest.approx(clock.wall() + 20.1))
        clock.now += 0.2
        assert source("")[:2] == ("token-2", clock.wall() + 100)


def test_a_valid_token_outlasts_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    """The old token serves to its end; then the error is raised, and the endpoint asked every 10 s."""
    clock = Ticking()
    with serve_tokens(lambda n: token(n) if n in (1, 5) else (503, {}, b"")) as endpoint:
        source = OidcTokenSource(parse_oidc_settings(endpoint.settings()), clock)
        source("")
        for seconds, requests in ((85, 2), (5, 2), (6, 3)):
            clock.now += seconds
            assert source("")[0] == "token-1"
            assert len(endpoint.requests) == requests
        clock.now += 5
        for _ in range(3):
            with pytest.raises(TokenEndpointUnavailableError, match="/token answers with HTTP 503"):
                source("")
        assert len(endpoint.requests) == 3
        clock.now += 5
        with pytest.raises(TokenEndpointUnavailableError):
            source("")
        clock.now += 10
        assert source("")[0] == "token-5"
    assert len([r for r in caplog.records if "No new token" in r.getMessage()]) == 1


BAD_BODIES = (
    b"", b"<html>hunter2", b"[]", b"null", b'"hunter2"', b"\xff\xfe", b"[" * 100_000, b"{}",
    b'{"access_token": "t"}', b'{"expires_in": 60}', b"9" * 10_000,
    *(
        b'{"access_token": %s, "expires_in": %s}' % pair
        for pair in (
            (b'"t"', b"Infinity"), (b'"t"', b"NaN"), (b'"t"', b"-1"), (b'"t"', b"0"), (b'"t"', b"1e999"),
            (b'"t"', b"null"), (b'"t"', b"[]"), (b'"t"', b'"soon"'), (b'"t"', b"9" * 400),
            (b"1", b"60"), (b"null", b"60"), (b'""', b"60"), (b'"hunter2\\u0001auth=x"', b"60"),
        )
    ),
    b'{"access_token": "t", "expires_in": 60, "x": "' + b"x" * (3 << 20) + b'"}',
)  # fmt: skip


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_a_bad_body_is_named(body: bytes) -> None:
    """An answer without a usable token ends in one error that shows nothing of it."""
    with serve_tokens(lambda _: (200, {}, body)) as endpoint:
        source = OidcTokenSource(parse_oidc_settings(endpoint.settings()), Ticking())
        with pytest.raises(TokenEndpointError, match=r"/token answers with .*; check that the URL") as caught:
            source("")
    assert not caught.value.retryable
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "text", "retryable"),
    [
        ((401, {}, b'{"error": "invalid_client"}'), r"refuses the client .HTTP 401, invalid_client.", False),
        ((400, {}, b'{"error": "hunter2"}'), r"refuses the client .HTTP 400.", False),
        ((400, {}, b"[" * 100_000), r"refuses the client .HTTP 400.", False),
        ((302, {"Location": "http://127.0.0.1:1/hunter2"}, b""), r"redirects .HTTP 302.", False),
        ((307, {"Location": "file:///etc/passwd"}, b""), r"redirects .HTTP 307.", False),
        ((429, {}, b""), "HTTP 429", True),
        ((500, {}, b"hunter2"), "HTTP 500", True),
        ([b"hunter2\r\n\r\n"], "cannot be reached", True),
        ([b""], "cannot be reached", True),
        ([b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n"], "cannot be reached", True),
        ([b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000 + b"\r\n"], "cannot be reached", True),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n" + b"x" * (3 << 20)],
            "more than 262144 bytes",
            False,
        ),
    ],
)
def test_a_refusal_is_named(answer: Any, text: str, *, retryable: bool) -> None:
    """The error tells whether a retry helps, and names the endpoint without its query or answer."""
    with serve_tokens(lambda _: answer) as endpoint:
        source = OidcTokenSource(parse_oidc_settings(endpoint.settings()), Ticking())
        with pytest.raises(SaslAuthenticationError, match=text) as caught:
            source("")
    assert f"127.0.0.1:{endpoint.server_port}/token " in str(caught.value)
    assert caught.value.retryable is retryable
    assert "hunter2" not in str(caught.value)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(("later", "text", "left"), [(10, "token-1", 90), (500, "token-2", 100)])
def test_a_dripping_endpoint_is_not_awaited(
    monkeypatch: pytest.MonkeyPatch, later: float, text: str, left: float
) -> None:
    """Each byte restarts the socket's timeout, not the caller's; the next takes what is still valid."""
    monkeypatch.setattr(oidc, "REQUEST_TIMEOUT_S", 0.3)
    clock = Ticking()

    def drip(number: int) -> Iterator[bytes]:
        for byte in b"HTTP/1.1 200 OK\r\n\r\n" + token(number)[2]:
            sleep(0.01 if number == 1 else 0)
            yield bytes([byte])

    with serve_tokens(drip) as endpoint:
        source = OidcTokenSource(parse_oidc_settings(endpoint.settings()), clock)
        with pytest.raises(TokenEndpointUnavailableError, match=r"does not answer within 0.3 s"):
            source("")
        assert source._pending is not None
        source._pending.result(10)
        clock.now += later
        assert source("")[:2] == (text, clock.wall() + left)
        assert len(endpoint.requests) == (1 if text == "token-1" else 2)


def test_a_long_lifetime_is_cut() -> None:
    """To a day: both clients count with numbers that hold it."""
    for lifetime in (1e300, "31536000"):
        with serve_tokens(lambda n, lifetime=lifetime: token(n, lifetime)) as endpoint:
            clock = Ticking()
            source = OidcTokenSource(parse_oidc_settings(endpoint.settings()), clock)
            assert source("")[1] == clock.wall() + 86_400


def test_the_endpoints_certificate_is_verified(tmp_path: Path) -> None:
    """By the system's authorities, or those of https.ca.location or https.ca.pem."""
    keys.signed(tmp_path, "idp", "ca", "idp", ["127.0.0.1"])
    context = tls.create_server_context(tmp_path / "idp.crt", tmp_path / "idp.key")
    with serve_tokens(token, context) as endpoint:
        own = {"https.ca.location": str(tmp_path / "ca.crt")}
        text = {"https.ca.pem": (tmp_path / "ca.crt").read_text()}
        for trust in (own, text):
            source = OidcTokenSource(parse_oidc_settings(endpoint.settings() | trust), Ticking())
            assert source("")[0].startswith("token-")
        untrusted = OidcTokenSource(parse_oidc_settings(endpoint.settings()), Ticking())
        with pytest.raises(TokenEndpointError, match=r"is not trusted: .*https.ca.location") as caught:
            untrusted("")
        assert not caught.value.retryable


def test_an_unreachable_endpoint_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Only by the error, which ends a start; an unencrypted one is logged."""
    with serve_tokens(token) as endpoint:
        settings = parse_oidc_settings(endpoint.settings())
    with caplog.at_level(logging.WARNING, "trimtab.oidc"):
        source = OidcTokenSource(settings, Ticking())
    assert "sent unencrypted" in caplog.text
    with pytest.raises(TokenEndpointUnavailableError, match="/token cannot be reached: Connection refused"):
        source("")
    assert len(caplog.records) == 1
    assert "hunter2" not in caplog.text
