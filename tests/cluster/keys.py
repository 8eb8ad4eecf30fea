"""Certificates of one day for tests: an authority, and one certificate signed by it."""

import datetime as dt
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

Key = rsa.RSAPrivateKey


def signed(
    folder: Path, name: str, authority: str, subject: str, hosts: Sequence[str] = (), days: int = 1
) -> None:
    """Write NAME.crt and NAME.key for a subject and hosts, and AUTHORITY.crt of their issuer.

    The certificate is valid for `days` from now; with a negative number it has expired.
    """
    above, key = _key(), _key()
    issuer = _name(authority)
    basic = x509.BasicConstraints(ca=True, path_length=None)
    root = _draft(issuer, issuer, above).add_extension(basic, critical=True)
    (folder / f"{authority}.crt").write_bytes(_pem(root.sign(above, hashes.SHA256())))
    leaf = _draft(_name(subject), issuer, key, days)
    if hosts:
        leaf = leaf.add_extension(
            x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
        )
    (folder / f"{name}.crt").write_bytes(_pem(leaf.sign(above, hashes.SHA256())))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / f"{name}.key").write_bytes(private)


def _key() -> Key:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _draft(subject: x509.Name, issuer: x509.Name, key: Key, days: int = 1) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    end = now + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - dt.timedelta(hours=1))
        .not_valid_after(end)
    )


def _host(host: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
