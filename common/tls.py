"""Translates librdkafka's `ssl.*` settings into TLS contexts of clients; builds those of endpoints.

1. Certificates and host names are verified unless a setting disables it.
2. TLS 1.2 is the minimum.
3. A private key given as text is never written to disk.
"""

import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from trimtab.common.errors import SettingError

SYSTEM_CA: Final = "probe"  # librdkafka's ssl.ca.location for the system's authorities


def create_client_context(config: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the TLS context of a Python client. Raises SettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = verifies_host(config)
    if not verifies_certificate(config):
        context.check_hostname = False  # ssl demands it before CERT_NONE
        context.verify_mode = ssl.CERT_NONE
    _load_trusted_cas(context, config)
    _load_client_certificate(context, config)
    if ciphers := config.get("ssl.cipher.suites"):
        try:
            context.set_ciphers(str(ciphers))
        except ssl.SSLError:  # it says no more than "No cipher can be selected"
            raise SettingError(f"ssl.cipher.suites={ciphers!r}: OpenSSL knows none") from None
    return context


def create_server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of an endpoint. Raises SettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # the base of ssl.SSLError, too
        raise SettingError(
            f"tls certificate {certificate} and key {key} cannot be used: "
            f"{_describe_ssl_error(error)}; give two PEM files that belong together"
        ) from None
    return context


def verifies_certificate(config: Mapping[str, Any]) -> bool:
    """Return whether the broker's certificate is verified."""
    value = str(config.get("enable.ssl.certificate.verification", True)).lower()
    return value in ("true", "t", "1")  # as librdkafka reads a Boolean


def verifies_host(config: Mapping[str, Any]) -> bool:
    """Return whether the certificate must hold the host name."""
    # librdkafka's default since 2.0
    return str(config.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"


def has_client_certificate(config: Mapping[str, Any]) -> bool:
    """Return whether a client certificate is configured."""
    return bool(config.get("ssl.certificate.pem") or config.get("ssl.certificate.location"))


def _load_trusted_cas(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    where, text = config.get("ssl.ca.location"), config.get("ssl.ca.pem")
    try:
        if text:
            context.load_verify_locations(cadata=str(text))
        elif where and where != SYSTEM_CA:
            folder = Path(str(where)).is_dir()  # librdkafka takes either, too
            context.load_verify_locations(**{"capath" if folder else "cafile": str(where)})
        else:
            context.load_default_certs()
        if crl := config.get("ssl.crl.location"):
            context.load_verify_locations(cafile=str(crl))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF  # off by default, the list unused
    except (OSError, ValueError) as error:
        named = next(n for n in ("ssl.ca.pem", "ssl.ca.location", "ssl.crl.location") if n in config)
        shown = "" if named.endswith(".pem") else f" {config[named]}"
        raise SettingError(
            f"{named}{shown} cannot be used: {_describe_ssl_error(error)}; give certificates in PEM"
        ) from None


def _load_client_certificate(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    password = config.get("ssl.key.password")
    with _PemFiles() as files:
        certificate = files.path_of(config, "ssl.certificate")
        key = files.path_of(config, "ssl.key")
        if certificate is None:
            return
        try:
            # always with a password function: without it OpenSSL prompts on the terminal
            context.load_cert_chain(certificate, key, lambda: str(password or ""))
        except OSError as error:
            raise SettingError(
                "ssl.certificate and ssl.key (.location or .pem) cannot be used: "
                f"{_describe_ssl_error(error)}; give PEM that belongs together, and "
                "ssl.key.password if the key is encrypted"
            ) from None


class _PemFiles:
    """Paths for PEM texts: in-memory files that live as long as the block."""

    def __enter__(self) -> Self:
        self._descriptors: list[int] = []
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._descriptors:
            with suppress(OSError):
                os.close(number)

    def path_of(self, config: Mapping[str, Any], name: str) -> str | None:
        """Return the file of NAME.location, or one that holds NAME.pem."""
        if text := config.get(f"{name}.pem"):
            # OpenSSL loads certificate chains from paths only; a memfd has one without a disk
            number = os.memfd_create(name)
            self._descriptors.append(number)
            os.write(number, str(text).encode())
            return f"/proc/self/fd/{number}"
        where = config.get(f"{name}.location")
        return str(where) if where else None


def _describe_ssl_error(error: Exception) -> str:
    # only the reason: the text adds a location in OpenSSL's C code, for PEM also content
    if isinstance(error, ssl.SSLError):
        return error.reason.lower().replace("_", " ") if error.reason else "not PEM"
    return (error.strerror if isinstance(error, OSError) else None) or "not PEM"
