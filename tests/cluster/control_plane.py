"""etcd, kube-apiserver and kube-controller-manager on free ports of the loopback device.

Authentication by tokens and RBAC are real; there is no scheduler and no kubelet (see `kubelet`).
The API server can be stopped and started again, on the same port and with the same data.
"""

import secrets
import signal
import socket
import ssl
import subprocess
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cluster.binaries import find
from cluster.keys import signed

HOST: Final = "127.0.0.1"
READY_SECONDS: Final = 180.0
CONTROLLERS: Final = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "serviceaccount-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
)
"""The controllers that the tests need; the others would only take time."""


class ControlPlane:
    """A control plane in its own folder; `kubeconfig` has an administrator's rights."""

    def __init__(self, folder: Path, hpa_seconds: float = 2.0) -> None:
        self.folder = folder
        self._hpa_seconds = hpa_seconds  # sync period of the HPA's controller
        self.kubeconfig = folder / "kubeconfig"
        self._log = folder / "log"
        self._log.mkdir(parents=True)
        self._token = secrets.token_hex(24)
        self._api, self._etcd, self._peer, self._managers = free_ports(4)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def server(self) -> str:
        """Address of the API server."""
        return f"https://{HOST}:{self._api}"

    @property
    def certificate(self) -> Path:
        """Certificate that clients trust."""
        return self.folder / "pki" / "apiserver.crt"

    def start(self) -> None:
        """Start everything; returns when it is ready. Raises RuntimeError with the log's end."""
        self._write_keys()
        self._start("etcd", self._etcd_flags())
        self._wait("etcd", f"http://{HOST}:{self._etcd}/health")
        self.start_api()
        self.kubeconfig.write_text(self.config_for(self._token))
        self.start_managers()

    def start_api(self) -> None:
        """Start the API server."""
        self._start("kube-apiserver", self._api_flags())
        self._wait("kube-apiserver", f"{self.server}/readyz")

    def stop_api(self) -> None:
        """Stop the API server."""
        self._stop("kube-apiserver")

    def start_managers(self) -> None:
        """Start the controllers."""
        self._start("kube-controller-manager", self._manager_flags())
        self._wait("kube-controller-manager", f"https://{HOST}:{self._managers}/healthz")

    def stop_managers(self) -> None:
        """Stop the controllers: requests are accepted, but not acted on."""
        self._stop("kube-controller-manager")

    def stop(self) -> None:
        """Stop all started processes."""
        for name in reversed(list(self._running)):
            self._stop(name)

    def config_for(self, token: str) -> str:
        """Return a kubeconfig with this token."""
        cluster = {"server": self.server, "certificate-authority": str(self.certificate)}
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
            "current-context": "test",
        }
        return yaml.safe_dump(body)

    def _write_keys(self) -> None:
        pki = self.folder / "pki"
        pki.mkdir(mode=0o700)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (pki / "sa.key").write_bytes(private)
        (pki / "sa.pub").write_bytes(public)
        signed(pki, "front", "front-ca", subject="front")
        (pki / "tokens.csv").write_text(f'{self._token},admin,admin,"system:masters"\n')

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://{HOST}:{self._etcd}", f"http://{HOST}:{self._peer}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--name=test",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=test={peer}",
            "--unsafe-no-fsync",
        ]

    def _api_flags(self) -> list[str]:
        pki = self.folder / "pki"
        return [
            f"--etcd-servers=http://{HOST}:{self._etcd}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            f"--secure-port={self._api}",
            f"--cert-dir={pki}",
            f"--token-auth-file={pki / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            f"--proxy-client-cert-file={pki / 'front.crt'}",  # for API servers behind this one
            f"--proxy-client-key-file={pki / 'front.key'}",
            f"--requestheader-client-ca-file={pki / 'front-ca.crt'}",
            "--requestheader-allowed-names=front",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--profiling=false",
        ]

    def _manager_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            f"--bind-address={HOST}",
            f"--secure-port={self._managers}",
            f"--cert-dir={self.folder / 'pki' / 'managers'}",
            f"--service-account-private-key-file={self.folder / 'pki' / 'sa.key'}",
            f"--root-ca-file={self.certificate}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false",
            f"--horizontal-pod-autoscaler-sync-period={self._hpa_seconds:g}s",
        ]

    def _start(self, name: str, flags: list[str]) -> None:
        with (self._log / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [str(find(name)), *flags],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the tests; they stop us
            )

    def _stop(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait(self, name: str, url: str) -> None:
        pause, deadline = Event(), monotonic() + READY_SECONDS
        while not self._answers(url):
            if self._running[name].poll() is not None or monotonic() > deadline:
                end = (self._log / f"{name}.log").read_text()[-2000:]
                raise RuntimeError(f"{name} is not ready:\n{end}")
            pause.wait(0.1)

    def _answers(self, url: str) -> bool:
        request = Request(url, headers={"Authorization": f"Bearer {self._token}"})  # noqa: S310 - ours
        trust = ssl.create_default_context()
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE  # the certificate is made while we wait
        try:
            with urlopen(request, timeout=2, context=trust) as answer:  # noqa: S310 - as above
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


def free_ports(count: int) -> list[int]:
    """Return unused ports of the loopback device."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
