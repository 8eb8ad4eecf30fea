"""A real broker with TLS, every SASL mechanism that Trimtab supports, and ACLs."""

import base64
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from cluster import keys
from trimtab.cli.broker.broker_config import ASSIGNOR_PROPERTIES
from trimtab.cli.broker.embedded_broker import EmbeddedBroker

PASSWORD = "hunter2-and-a-half"  # noqa: S105 - a test value
USERS = ("limited", "admin")
LISTENERS = {"SECURE": "SASL_SSL", "TLS": "SSL", "STRANGE": "SASL_SSL", "OLD": "SASL_SSL"}
"""STRANGE has a certificate for another host, OLD one that has expired."""

MODULES = "org.apache.kafka.common.security"
KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.BROKER}

Right = tuple[str, str, str]
"""Kind of resource, its name, operation: ("topic", "data", "read")."""


@dataclass
class Secured:
    """The broker, its certificates, and an administrator."""

    broker: EmbeddedBroker
    folder: Path
    admin: AdminClient

    @property
    def authority(self) -> str:
        """File with the CA certificate of the broker."""
        return str(self.folder / "ca.crt")

    def client(self, mechanism: str = "SCRAM-SHA-512", listener: str = "SECURE") -> dict[str, Any]:
        """Return client settings; the mechanism "TLS" is a client certificate."""
        if mechanism == "TLS":
            return {
                "bootstrap.servers": self.broker.listener_address("TLS"),
                "security.protocol": "SSL",
                "ssl.ca.pem": Path(self.authority).read_text(),
                "ssl.certificate.pem": (self.folder / "client.crt").read_text(),
                "ssl.key.pem": (self.folder / "client.key").read_text(),
            }
        shared = {
            "bootstrap.servers": self.broker.listener_address(listener),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority,
            "sasl.mechanism": mechanism,
        }
        if mechanism == "OAUTHBEARER":
            return shared | {"oauth_cb": "support.secured:token"}
        return shared | {"sasl.username": "limited", "sasl.password": PASSWORD}

    def make_topic(self, name: str, partitions: int = 2) -> None:
        """Create a topic."""
        for created in self.admin.create_topics([NewTopic(name, partitions, 1)]).values():
            created.result(30)

    def make_topics(self, names: Iterable[str]) -> None:
        """Create missing topics."""
        existing_topics = self.admin.list_topics(timeout=10).topics
        for name in names:
            if name not in existing_topics:
                self.make_topic(name, 1)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete existing topics."""
        existing_topics = self.admin.list_topics(timeout=10).topics
        names = [name for name in names if name in existing_topics]
        for deleted in (self.admin.delete_topics(names) if names else {}).values():
            deleted.result(30)

    def grant(self, rights: Iterable[Right]) -> None:
        """Grant ACLs to the user; return once the broker applies them."""
        rights = tuple(rights)
        for created in self.admin.create_acls([_binding(right) for right in rights]).values():
            created.result(30)
        self._wait_until_applied(rights, granted=True)

    def revoke(self, right: Right) -> None:
        """Revoke an ACL; return once the broker no longer applies it."""
        for revoked in self.admin.delete_acls([_filter(right)]).values():
            revoked.result(30)
        self._wait_until_applied([right], granted=False)

    def _wait_until_applied(self, rights: Iterable[Right], *, granted: bool) -> None:
        # the controller answers, and the broker's authorizer follows
        deadline = time.monotonic() + 60
        for right in rights:
            while bool(self.admin.describe_acls(_filter(right)).result(30)) != granted:
                assert time.monotonic() < deadline, f"the broker does not apply {right}"
                time.sleep(0.01)


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """Run the broker; its users exist when the block starts."""
    keys.signed(folder, "broker", "ca", "broker", ["localhost", "127.0.0.1"])
    keys.signed(folder, "strange", "ca-strange", "broker", ["elsewhere.example"])
    keys.signed(folder, "old", "ca-old", "broker", ["127.0.0.1"], days=-1)
    keys.signed(folder, "client", "ca-clients", "client")
    with EmbeddedBroker(listeners=LISTENERS, properties=_properties(folder)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        _add_users(admin)
        yield Secured(broker, folder, admin)


def token(_: str, seconds: float = 3600.0) -> tuple[str, float]:
    """Return an unsigned token, which the broker is configured to accept, and its expiry."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "limited", "iat": now - 1, "exp": now + seconds})
    coded = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return f"{coded[0]}.{coded[1]}.", now + seconds


def _properties(folder: Path) -> dict[str, str]:
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
    oauth = f"{MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    properties = {
        **ASSIGNOR_PROPERTIES,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",  # every client of the plain listener
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.principal.mapping.rules": "RULE:^CN=client$/limited/,DEFAULT",
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.certificates": (folder / "ca-clients.crt").read_text(),
    }
    for listener, name in (
        ("secure", "broker"), ("tls", "broker"), ("strange", "strange"), ("old", "old"),
    ):  # fmt: skip
        key = f"listener.name.{listener}"
        properties |= {
            f"{key}.ssl.keystore.type": "PEM",
            f"{key}.ssl.keystore.key": (folder / f"{name}.key").read_text(),
            f"{key}.ssl.keystore.certificate.chain": (folder / f"{name}.crt").read_text(),
        }
    for listener in ("secure", "strange", "old"):
        key = f"listener.name.{listener}"
        properties |= {
            f"{key}.plain.sasl.jaas.config": (f"{MODULES}.plain.PlainLoginModule required {users};"),
            f"{key}.scram-sha-256.sasl.jaas.config": (f"{MODULES}.scram.ScramLoginModule required;"),
            f"{key}.scram-sha-512.sasl.jaas.config": (f"{MODULES}.scram.ScramLoginModule required;"),
            f"{key}.oauthbearer.sasl.jaas.config": (
                f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
            f"{key}.oauthbearer.sasl.server.callback.handler.class": oauth,
        }
    return properties


def _add_users(admin: AdminClient) -> None:
    """Create the users for both SCRAM mechanisms; a request may change each user once."""
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        users = [UserScramCredentialUpsertion(name, info, PASSWORD.encode()) for name in USERS]
        for altered in admin.alter_user_scram_credentials(users).values():
            altered.result(30)


def _binding(right: Right) -> AclBinding:
    kind, name, operation = right
    return AclBinding(
        KINDS[kind], name, ResourcePatternType.LITERAL, "User:limited", "*",
        AclOperation[operation.upper()], AclPermissionType.ALLOW,
    )  # fmt: skip


def _filter(right: Right) -> AclBindingFilter:
    binding = _binding(right)
    return AclBindingFilter(
        binding.restype, binding.name, binding.resource_pattern_type, binding.principal,
        binding.host, binding.operation, binding.permission_type,
    )  # fmt: skip
