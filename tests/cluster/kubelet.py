"""The kubelet of the tests: binds pods to a node, reports them ready, and ends them.

If a pod's container has a command, it runs as a real process on this machine, with the container's
environment (values, and the pod's name and IP address by the downward API). A process that ends is
started again after a moment. A deletion is SIGTERM, the grace period, SIGKILL, and only then the pod is
gone. Other pods are only reported as running.
"""

import datetime as dt
import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, Final

from kubernetes import client, config
from kubernetes.client.rest import ApiException
from urllib3.exceptions import HTTPError

NODE: Final = "test-node"
ZONE: Final = "zone-a"
TICK: Final = 0.1
CONDITIONS: Final = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
GONE: Final = (404, 409, 422)  # another client was faster


class Kubelet:
    """A thread that runs all pods; pods in `unready` never become ready."""

    def __init__(self, kubeconfig: Path, logs: Path) -> None:
        self.unready: set[str] = set()
        self.asleep = Event()  # while set, nothing is done
        self.deleting: Callable[[str], None] | None = None  # called before the pod gets SIGTERM
        self._logs = logs
        self._core = client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}  # by uid
        self._names: dict[str, str] = {}  # of pods by uid
        self._addresses: dict[str, str] = {}  # loopback addresses by uid
        self._alive: tuple[str, ...] = ()
        self._signalled: dict[str, float] = {}  # time of SIGTERM
        self._stop = Event()
        self._thread = Thread(target=self._work, name="kubelet", daemon=True)

    def start(self) -> None:
        """Create the node and start."""
        with suppress(ApiException):
            labels = {"topology.kubernetes.io/zone": ZONE}
            self._core.create_node({"metadata": {"name": NODE, "labels": labels}})
        self._logs.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and end all processes."""
        self._stop.set()
        self._thread.join()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._core.api_client.close()

    def log(self, pod: str) -> str:
        """Return the output of a pod's process."""
        file = self._logs / f"{pod}.log"
        return file.read_text() if file.exists() else ""

    def logs(self, workload: str) -> str:
        """Return the output of all processes of a workload's pods, also of deleted pods."""
        return "\n".join(file.read_text() for file in self._logs.glob(f"{workload}-*.log"))

    def alive(self, workload: str) -> list[str]:
        """Return a workload's pods that were not being deleted at the last look."""
        return [name for name in self._alive if name.startswith(f"{workload}-")]

    def running(self, workload: str = "") -> int:
        """Return the number of running processes, of one workload or of all."""
        processes = tuple(self._processes.items())
        ours = [p for uid, p in processes if not workload or self._names[uid].startswith(f"{workload}-")]
        return sum(process.poll() is None for process in ours)

    def _work(self) -> None:
        while not self._stop.wait(TICK):
            if not self.asleep.is_set():
                with suppress(HTTPError, ApiException):  # the API server is away
                    self._look()

    def _look(self) -> None:
        answer: Any = self._core.list_pod_for_all_namespaces(_preload_content=False)
        pods = json.loads(answer.data)["items"]
        metadata = [pod["metadata"] for pod in pods]
        self._alive = tuple(m["name"] for m in metadata if not m.get("deletionTimestamp"))
        for pod in pods:
            try:
                self._tend(pod)
            except ApiException as error:
                if error.status not in GONE:
                    raise

    def _tend(self, pod: dict[str, Any]) -> None:
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        name, namespace = metadata["name"], metadata["namespace"]
        number = len(self._addresses) + 1
        address = self._addresses.setdefault(metadata["uid"], f"127.1.{number // 250}.{number % 250 + 1}")
        pod["status"]["podIP"] = address
        if metadata.get("deletionTimestamp"):
            if self._ended(pod):
                self._core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
        elif not pod["spec"].get("nodeName"):
            self._bind(name, namespace)
        elif phase == "Pending":
            self._run(pod)
            self._say(pod, ready=name not in self.unready)
        elif _ready(pod) == (name in self.unready):
            self._say(pod, ready=name not in self.unready)
        else:
            self._run(pod)

    def _bind(self, name: str, namespace: str) -> None:
        reference = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {"metadata": {"name": name}, "target": reference}
        self._core.create_namespaced_pod_binding(name, namespace, body, _preload_content=False)

    def _say(self, pod: dict[str, Any], *, ready: bool) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status_text = "True" if ready else "False"
        status = {
            "phase": "Running",
            "startTime": now,
            "podIP": pod["status"]["podIP"],
            "podIPs": [{"ip": pod["status"]["podIP"]}],
            "conditions": [
                {
                    "type": kind,
                    "status": status_text if kind.endswith("eady") else "True",
                    "lastTransitionTime": now,
                }
                for kind in CONDITIONS
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "test",
                    "ready": ready,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for container in pod["spec"]["containers"]
            ],
        }
        metadata = pod["metadata"]
        self._core.patch_namespaced_pod_status(
            metadata["name"], metadata["namespace"], {"status": status}, _preload_content=False
        )

    def _run(self, pod: dict[str, Any]) -> None:
        """Start the process of a pod that has a command and no running process."""
        uid, container = pod["metadata"]["uid"], pod["spec"]["containers"][0]
        process = self._processes.get(uid)
        if "command" not in container or (process is not None and process.poll() is None):
            return
        environment = {e["name"]: _value(e, pod) for e in container.get("env", ())}
        command = [_expanded(part, environment) for part in container["command"]]
        self._names[uid] = pod["metadata"]["name"]
        with (self._logs / f"{pod['metadata']['name']}.log").open("ab") as log:
            self._processes[uid] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                process_group=0,
            )

    def _ended(self, pod: dict[str, Any]) -> bool:
        """End the pod's process step by step; return whether it has ended."""
        uid = pod["metadata"]["uid"]
        process = self._processes.get(uid)
        if process is None:
            return True
        if process.poll() is not None:
            del self._processes[uid]
            return True
        patience = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if uid not in self._signalled:
            if self.deleting is not None:
                self.deleting(pod["metadata"]["name"])
            self._signalled[uid] = monotonic()
            process.send_signal(signal.SIGTERM)
        elif monotonic() - self._signalled[uid] > patience:
            os.killpg(process.pid, signal.SIGKILL)
        return False


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _value(entry: dict[str, Any], pod: dict[str, Any]) -> str:
    """Return the value of an environment variable, also from the downward API."""
    if "value" in entry:
        return str(entry["value"])
    field, _, key = entry["valueFrom"]["fieldRef"]["fieldPath"].partition("['")
    value: Any = pod
    for part in field.split("."):
        value = value[part]
    return str(value.get(key.removesuffix("']"), "") if key else value)


def _expanded(text: str, environment: dict[str, str]) -> str:
    """Replace $(NAME) in a part of a command, as Kubernetes does."""
    for name, value in environment.items():
        text = text.replace(f"$({name})", value)
    return text
