"""SASL logins, as exchanges of bytes: a generator yields what to send and is sent what the broker answers.

Each ends when it has nothing more to send, and raises LoginFailedError for an answer that it cannot accept.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Generator, Mapping
from secrets import token_urlsafe
from typing import Any, Final, TypeAlias

from trimtab.common.kafka_protocol.errors import LoginFailedError
from trimtab.common.kafka_security import client_config
from trimtab.common.kafka_security.tokens import CachedToken

Login: TypeAlias = Generator[bytes, bytes, None]
_SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MIN_ITERATIONS: Final = 4096  # RFC 7677; fewer would tell the password to a hostile broker
_MAX_ITERATIONS: Final = 1_000_000  # more would keep this process busy
_AUTH_ONLY: Final = 1  # GSSAPI: neither signatures nor encryption


def choose_login(
    config: Mapping[str, Any], token: CachedToken | None, make_nonce: Callable[[], str] = token_urlsafe
) -> Callable[[str], Login]:
    """Return the function that begins a login at a host. Raises LoginFailedError for an unknown mechanism."""
    mechanism = client_config.sasl_mechanism(config) or ""
    user, password = str(config.get("sasl.username", "")), str(config.get("sasl.password", ""))
    if mechanism == "PLAIN":
        return lambda _host: log_in_plain(user, password)
    if mechanism in _SCRAM_HASHES:
        return lambda _host: log_in_scram(_SCRAM_HASHES[mechanism], user, password, make_nonce())
    if mechanism == "OAUTHBEARER" and token is not None:
        return lambda _host: log_in_with_token(token)
    if mechanism == "GSSAPI":
        service = str(config.get("sasl.kerberos.service.name", "kafka"))
        return lambda host: log_in_gssapi(f"{service}@{host}")
    raise LoginFailedError(f"sasl.mechanism={mechanism} is not supported")


def log_in_plain(user: str, password: str) -> Login:
    """RFC 4616."""
    yield f"\0{user}\0{password}".encode()


def log_in_with_token(token: CachedToken) -> Login:
    """RFC 7628 with the extensions of KIP-342."""
    text = token.token()
    fields = {"auth": f"Bearer {text}", **token.extensions()}
    pairs = [f"{name}={value}" for name, value in fields.items()]
    answer = yield "\x01".join(["n,,", *pairs, "", ""]).encode()
    if answer:  # why the token is refused; the broker's error follows this
        yield b"\x01"
        raise LoginFailedError(answer.decode(errors="replace"))


def log_in_scram(algorithm: str, user: str, password: str, nonce: str) -> Login:
    """RFC 5802. Raises LoginFailedError also if the broker does not know the password either."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = (yield f"n,,{first}".encode()).decode(errors="replace")
    given = _parse_scram(challenge)
    salt, iterations = _check_challenge(given, nonce)
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    bare = f"c=biws,r={given['r']}"
    signed = f"{first},{challenge},{bare}".encode()

    def sign(key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, algorithm).digest()

    key = sign(salted, b"Client Key")
    signature = sign(hashlib.new(algorithm, key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    final = _parse_scram(
        (yield f"{bare},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    )
    expected = base64.b64encode(sign(sign(salted, b"Server Key"), signed)).decode()
    if not hmac.compare_digest(final.get("v", "").encode(), expected.encode()):
        raise LoginFailedError(f"SCRAM: {final.get('e', 'the broker does not know the password')}")


def _parse_scram(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",")}


def _check_challenge(given: Mapping[str, str], nonce: str) -> tuple[bytes, int]:
    """Return salt and iterations."""
    try:
        salt, iterations = base64.b64decode(given["s"]), int(given["i"])
    except (KeyError, ValueError):
        raise LoginFailedError(f"SCRAM: {given.get('e', 'the answer is none of SCRAM')}") from None
    if not given.get("r", "").startswith(nonce) or not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
        raise LoginFailedError(f"SCRAM: the challenge is refused: i={iterations}")
    return salt, iterations


def log_in_gssapi(service: str) -> Login:
    """RFC 4752, with the package `gssapi`."""
    try:
        import gssapi  # type: ignore[import-not-found] # noqa: PLC0415 - optional
    except (ImportError, OSError) as error:
        raise LoginFailedError(f"sasl.mechanism=GSSAPI needs the package gssapi: {error}") from None
    try:
        name = gssapi.Name(service, name_type=gssapi.NameType.hostbased_service)
        name = name.canonicalize(gssapi.MechType.kerberos)
        context = gssapi.SecurityContext(name=name, usage="initiate")
        answer = None
        while not context.complete:
            answer = yield context.step(answer) or b""
        offered = context.unwrap(answer).message  # protections, and the largest message, which is agreed to
        agreed = bytes([offered[0] & _AUTH_ONLY]) + offered[1:] + service.encode()
        yield context.wrap(agreed, False).message  # noqa: FBT003 - gssapi's
    except gssapi.exceptions.GSSError as error:
        raise LoginFailedError(f"GSSAPI: {error}") from None
