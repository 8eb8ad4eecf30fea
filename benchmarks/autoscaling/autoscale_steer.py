"""The two autoscalers of bench_autoscale, with their default times divided by a factor.

The factor divides the times that depend on the load: polling intervals, windows, cooldowns and
catch-up time. Starting a process takes real time, so the sidecar's `startup-timeout` and
`drain-retry` are not divided. KEDA's polling interval and the periods of the HPA's policies are
whole seconds, at least one: they are rounded down, which favours KEDA.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.autoscaling.autoscale_rig import Rig

LEAST, MOST = 1, 12
"""Replicas, for both."""

SIDECAR = {
    "interval": 10.0,
    "window": 30.0,
    "cooldown": 30.0,
    "catch-up-time": 120.0,
    "backlog-grace": 15.0,
    "scale-up-evaluation-retry": 600.0,
}
"""The sidecar's defaults that are divided, in seconds."""

HPA_LOOKS, POLLING, PERIOD = 15.0, 30.0, 15.0
"""Seconds: how often the HPA looks, KEDA's polling interval, the period of the HPA's policies."""

SCALE_IN, HPA_SCALE_IN = 120.0, 300.0
"""Seconds: the window for scaling in, the sidecar's default and the HPA's."""

COMMITS = 5.0
"""Seconds between two commits of a consumer, librdkafka's default."""


@dataclass(frozen=True, slots=True)
class Times:
    """The divisor of all times, and the scale-in windows before the division, in seconds."""

    factor: float
    scale_in: float = SCALE_IN
    hpa_scale_in: float = HPA_SCALE_IN


@contextmanager
def steer_by_trimtab(
    on: Rig, bootstrap: str, name: str, capacity: float, times: Times, **settings_of_page: Any
) -> Iterator[None]:
    """Scale by the sidecar with target `kubernetes` and otherwise its defaults."""
    settings = {
        "bootstrap": bootstrap,
        "group": name,
        "topics": name,
        "capacity": f"{capacity / 1000:g} kB/s",
        "min": LEAST,
        "max": MOST,
        "target": "kubernetes",
        "workload": f"deployment/{name}",
        "kubeconfig": str(on.plane.kubeconfig),
        "offset-reset": "earliest",
        **{key: f"{seconds / times.factor:.3f} s" for key, seconds in SIDECAR.items()},
        "scale-down-stabilization-window": f"{times.scale_in / times.factor:.3f} s",
        **settings_of_page,
    }
    config: Path = on.plane.folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "--config", str(config)]
    with (
        config.with_suffix(".log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as sidecar,
    ):
        try:
            yield
        finally:
            sidecar.terminate()


@contextmanager
def steer_by_keda(on: Rig, bootstrap: str, name: str, threshold: int, times: Times) -> Iterator[None]:
    """Scale by KEDA's `kafka` scaler and the HPA."""
    trigger = {
        "bootstrapServers": bootstrap,
        "consumerGroup": name,
        "topic": name,
        "lagThreshold": str(threshold),
        "offsetResetPolicy": "earliest",
        "version": "2.8.0",  # Kafka 4 no longer supports the default version of the scaler
    }
    spec = {
        "scaleTargetRef": {"name": name},
        "minReplicaCount": LEAST,
        "maxReplicaCount": MOST,
        "pollingInterval": _round_up_seconds(POLLING / times.factor),
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _write_hpa_behavior(times)}},
        "triggers": [{"type": "kafka", "metadata": trigger}],
    }
    body = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
    on.keda.scale({**body, "metadata": {"name": name}, "spec": spec})
    try:
        yield
    finally:
        on.keda.forget(name)


def _write_hpa_behavior(times: Times) -> dict[str, Any]:
    """Return the HPA's default behavior, with shorter times."""
    period = _round_up_seconds(PERIOD / times.factor)
    percent = {"type": "Percent", "value": 100, "periodSeconds": period}
    four = {"type": "Pods", "value": 4, "periodSeconds": period}
    up = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [percent, four]}
    window = _round_up_seconds(times.hpa_scale_in / times.factor)
    down = {"stabilizationWindowSeconds": window, "policies": [percent]}
    return {"scaleUp": up, "scaleDown": down}


def _round_up_seconds(seconds: float) -> int:
    return max(1, int(seconds))
