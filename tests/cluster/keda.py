"""A real KEDA (operator and metrics adapter) beside a control plane, on the loopback device.

Its resource definitions come from its module. The external metrics API is registered, so that the
HPA's controller acts on KEDA's metrics.
"""

import os
import signal
import subprocess
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

from kubernetes import client

from cluster.binaries import find
from cluster.build import keda_source
from cluster.control_plane import HOST, ControlPlane, free_ports
from cluster.definitions import define
from cluster.keys import signed
from cluster.workloads import NAMESPACE, Cluster

GROUP: Final = "keda.sh"
VERSION: Final = "v1alpha1"
PLURAL: Final = "scaledobjects"
ITS_NAMESPACE: Final = "keda"
METRICS_API: Final = "v1beta1.external.metrics.k8s.io"
SERVICE: Final = "keda-metrics-apiserver"


class Keda:
    """KEDA's two processes; their logs are in the control plane's folder."""

    def __init__(self, plane: ControlPlane, cluster: Cluster) -> None:
        self._plane = plane
        self._cluster = cluster
        self._folder = plane.folder / "keda"
        self._certificates = self._folder / "certificates"
        self._objects = client.CustomObjectsApi(cluster.client)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start both; return once the HPA's controller can query metrics. Raises RuntimeError, OSError."""
        operator, adapter = find("keda-operator"), find("keda-metrics-adapter")
        self._certificates.mkdir(parents=True)
        signed(self._certificates, "tls", "ca", "keda-operator", ("localhost", HOST))
        define(self._cluster, (keda_source() / "config" / "crd" / "bases").glob("*.yaml"))
        self._cluster.core.create_namespace({"metadata": {"name": ITS_NAMESPACE}})
        metrics, probe, service, secure = free_ports(4)
        self._run(operator, self._operator_flags(metrics, probe, service))
        self._wait("the operator", lambda: _answers(f"http://{HOST}:{probe}/readyz"))
        self._run(adapter, self._adapter_flags(service, secure))
        self._register(secure)
        self._wait("the external metrics API", self._registered)

    def stop(self) -> None:
        """Stop both."""
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def scale(self, body: dict[str, Any]) -> None:
        """Create a ScaledObject."""
        self._objects.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, body)

    def forget(self, name: str) -> None:
        """Delete a ScaledObject and with it its HPA."""
        self._objects.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL, name)

    def _operator_flags(self, metrics: int, probe: int, service: int) -> list[str]:
        return [
            f"--kubeconfig={self._plane.kubeconfig}",
            "--leader-elect=false",
            f"--metrics-bind-address={HOST}:{metrics}",
            f"--health-probe-bind-address={HOST}:{probe}",
            f"--metrics-service-bind-address={HOST}:{service}",
            f"--cert-dir={self._certificates}",
            "--enable-cert-rotation=false",
        ]

    def _adapter_flags(self, service: int, secure: int) -> list[str]:
        config = self._plane.kubeconfig
        return [
            f"--kubeconfig={config}",
            f"--lister-kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            f"--bind-address={HOST}",
            f"--secure-port={secure}",
            "--port=0",
            f"--cert-dir={self._certificates}",
            f"--metrics-service-address={HOST}:{service}",
            "--metrics-service-grpc-authority=localhost",
        ]

    def _run(self, program: Path, flags: list[str]) -> None:
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._plane.kubeconfig),
            "WATCH_NAMESPACE": "",
            "POD_NAMESPACE": ITS_NAMESPACE,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": ITS_NAMESPACE,
        }
        with (self._folder / f"{program.name}.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    [str(program), *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    process_group=0,  # Ctrl-C is for the tests; they stop us
                )
            )

    def _register(self, port: int) -> None:
        """Let the API server forward requests for external metrics to the adapter."""
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        body = {"metadata": {"name": SERVICE}, "spec": spec}
        self._cluster.core.create_namespaced_service(ITS_NAMESPACE, body)
        service = {"name": SERVICE, "namespace": ITS_NAMESPACE, "port": port}
        spec = {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": service,
        }
        made = client.ApiregistrationV1Api(self._cluster.client)
        made.create_api_service({"metadata": {"name": METRICS_API}, "spec": spec})

    def _registered(self) -> bool:
        api = client.ApiregistrationV1Api(self._cluster.client)
        conditions = api.read_api_service_status(METRICS_API).status.conditions or ()
        return any(c.type == "Available" and c.status == "True" for c in conditions)

    def _wait(self, what: str, holds: Any, seconds: float = 120.0) -> None:
        pause, deadline = Event(), monotonic() + seconds
        while not holds():
            ended = any(process.poll() is not None for process in self._running)
            if ended or monotonic() > deadline:
                logs = sorted(self._folder.glob("*.log"))
                ends = "\n".join(log.read_text()[-1500:] for log in logs)
                raise RuntimeError(f"KEDA: {what} is not ready:\n{ends}")
            pause.wait(0.2)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:  # noqa: S310 - ours
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
