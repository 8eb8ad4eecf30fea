"""Logins as byte exchanges: the examples of the RFCs, and brokers that cheat."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ticking import Ticking
from trimtab.common.kafka_protocol.errors import LoginFailedError
from trimtab.common.kafka_protocol.sasl import (
    choose_login,
    log_in_gssapi,
    log_in_plain,
    log_in_scram,
    log_in_with_token,
)
from trimtab.common.kafka_security.tokens import CachedToken

NONCE = "rOprNGfwEbeRWgbNEkqO"  # RFC 7677
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def begin_scram() -> Any:
    login = log_in_scram("sha256", "user", "pencil", NONCE)
    assert next(login) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    return login


def test_scram_is_that_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    login = begin_scram()
    assert login.send(CHALLENGE) == PROOF
    with pytest.raises(StopIteration):
        login.send(VERIFIER)


@pytest.mark.parametrize(
    ("challenge", "verifier"),
    [
        (CHALLENGE.replace(b"4096", b"1"), b""),
        (CHALLENGE.replace(b"4096", b"999999999"), b""),
        (CHALLENGE.replace(b"r=rOpr", b"r=xxxx"), b""),
        (b"e=unknown-user", b""),
        (CHALLENGE, b"v=AAAA"),
        (CHALLENGE, b"e=invalid-proof"),
    ],
)
def test_a_broker_that_cheats_is_refused(challenge: bytes, verifier: bytes) -> None:
    """Few iterations would tell it the password, many keep the client busy; the verifier proves who it is."""

    def log_in() -> None:
        login = begin_scram()
        login.send(challenge)
        login.send(verifier)

    with pytest.raises(LoginFailedError, match="SCRAM"):
        log_in()


@given(answer=st.binary())
def test_any_answer_is_a_named_error(answer: bytes) -> None:
    """Also one that is no text."""
    with pytest.raises(LoginFailedError):
        begin_scram().send(answer)


def test_plain_and_tokens() -> None:
    """RFC 4616 and RFC 7628 with KIP-342's extensions; a refused token is acknowledged, and then an error."""
    assert next(log_in_plain("u", "p")) == b"\0u\0p"
    clock = Ticking()
    token = CachedToken(lambda _: ("abc", clock.wall() + 60, "me", {"tenant": "t"}), "", clock)
    login = log_in_with_token(token)
    assert next(login) == b"n,,\x01auth=Bearer abc\x01tenant=t\x01\x01"
    assert login.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginFailedError, match="invalid_token"):
        login.send(b"")


def test_a_missing_package_and_an_unknown_mechanism_are_named() -> None:
    """Before anything is sent."""
    with pytest.raises(LoginFailedError, match="gssapi"):
        next(log_in_gssapi("kafka@b"))
    with pytest.raises(LoginFailedError, match=r"sasl.mechanism=X"):
        choose_login({"sasl.mechanism": "X"}, None)
