"""What `deploy/` renders, before it meets an API server: chart and overlays are the same."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, Final

import pytest
import yaml

from cluster.manifests import (
    CHART,
    DEPLOY,
    DIGEST,
    OVERLAYS,
    TLS,
    VALUES,
    Object,
    chart,
    encrypted,
    lint,
    named,
    overlay,
)
from cluster.manifests import settings as settings_of
from trimtab.common.settings_model import list_settings
from trimtab.consumer_sdk.lake import ingest
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings
from trimtab.sidecar.targets.kubernetes.api_client import ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def both(name: str) -> list[list[Object]]:
    return [overlay(name), chart(VALUES[name])]


def pods(objects: Iterable[Object]) -> Iterator[dict[str, Any]]:
    return (o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment")


def test_the_chart_is_sound() -> None:
    """Helm's own linter finds no fault with the chart, warnings included."""
    assert "0 chart(s) failed" in lint()


@pytest.mark.parametrize("name", OVERLAYS)
def test_chart_and_overlay_are_the_same(name: str) -> None:
    """Whoever takes the chart gets what the overlay gives: roles, security, probes, all of it."""
    kustomized, charted = (
        {key: essence(body) for key, body in named(objects).items()} for objects in both(name)
    )
    kustomized.pop(("Namespace", "trimtab"))  # helm's --create-namespace
    assert sorted(charted) == sorted(kustomized)
    for key, body in kustomized.items():
        assert charted[key] == body, key


@pytest.mark.parametrize("name", OVERLAYS)
def test_probes_ask_for_what_needs_no_token(name: str) -> None:
    """Without TLS in plain text; /metrics, which may ask for a token, is for Prometheus."""
    for objects in both(name):
        assert {(p["path"], p["scheme"]) for p in probes(objects)} == {
            ("/healthz", "HTTP"),
            ("/readyz", "HTTP"),
        }


def test_tls_and_tokens_are_asked_for_as_they_are_set(tmp_path: Path) -> None:
    """Probes and Prometheus go by HTTPS, with the token; component and chart are the same."""
    kustomized, charted = named(encrypted(tmp_path)), named(chart(TLS))
    assert {p["scheme"] for p in probes(kustomized.values())} == {"HTTPS"}
    assert len(list(probes(kustomized.values()))) == 4
    monitors = ("ServiceMonitor", "trimtab-sidecar"), ("PodMonitor", "trimtab-consumer")
    for key in monitors:
        assert essence(charted[key]) == essence(kustomized[key])
        spec = charted[key]["spec"]
        (asked,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
        assert asked["scheme"] == "https"
        assert asked["authorization"] == {"credentials": {"name": "trimtab-kafka", "key": "token"}}
    assert sorted(map(str, probes(charted.values()))) == sorted(map(str, probes(kustomized.values())))


def test_a_token_that_prometheus_does_not_have_is_refused() -> None:
    """The chart says what to set, instead of monitors that get 401."""
    token = {"sidecar.settings.token-file": "/token"}
    assert chart(token)
    with pytest.raises(CalledProcessError) as refused:
        chart({**token, "monitoring.enabled": "true"})
    assert "set monitoring.sidecar.authorization" in refused.value.stderr


def probes(objects: Iterable[Object]) -> Iterator[dict[str, Any]]:
    """Yield what probes ask for."""
    for pod in pods(objects):
        (container,) = pod["containers"]
        yield from (b["httpGet"] for key, b in container.items() if key.endswith("Probe"))


def essence(body: Object) -> Any:
    """Return what an object says, but for names and labels that are the tool's own."""
    if body["kind"] == "ConfigMap":
        return {file: yaml.safe_load(text) for file, text in body["data"].items()}
    return _stripped({k: v for k, v in body.items() if k != "metadata"})


def _stripped(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_stripped(item) for item in value), key=str)
    if isinstance(value, str):
        return DIGEST.sub("", value)
    if not isinstance(value, dict):
        return value
    theirs = ("app.kubernetes.io/instance", "imagePullPolicy", "annotations", "namespace")
    return {k: _stripped(v) for k, v in sorted(value.items()) if k not in theirs}


@pytest.mark.parametrize("name", OVERLAYS)
def test_settings_are_understood(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings in the config maps are ones that consumer and sidecar take, and they agree."""
    monkeypatch.delenv("TRIMTAB_INSTANCE", raising=False)
    for objects in both(name):
        consumer = settings_of(objects, "consumer")
        sidecar = load_settings(None, settings_of(objects, "sidecar"))
        read = ingest.parse_ingest_settings(consumer)
        assert (consumer["group.id"], read.topics) == (sidecar.group, sidecar.topics)
        assert consumer["trimtab.capacity"] == settings_of(objects, "sidecar")["capacity"]
        assert consumer["trimtab.metrics.host"] == sidecar.host == "0.0.0.0"  # noqa: S104 - in a pod
        workload = named(objects)["Deployment", "trimtab-consumer"]
        assert sidecar.workload == f"deployment/{workload['metadata']['name']}"
        ports = {
            port["name"]: port["containerPort"]
            for pod in pods(objects)
            for port in pod["containers"][0]["ports"]
        }
        assert ports["http"] == sidecar.port
        assert ports.get("grpc", sidecar.grpc_port) == sidecar.grpc_port


@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_have_no_more_than_they_need(name: str) -> None:
    """No root, no writable root file system, no capability, no token but the sidecar's."""
    for objects in both(name):
        found = list(pods(objects))
        assert len(found) == 2
        for pod in found:
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            (container,) = pod["containers"]
            assert container["securityContext"] == RESTRICTED
            assert pod["automountServiceAccountToken"] == (container["name"] == "sidecar")
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # noqa: S108 - a mount


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_hanging_lake_is_waited_for(name: str) -> None:
    """A consumer that is told to end has the time that its own patience adds up to."""
    for objects in both(name):
        patience = ingest.parse_ingest_settings(settings_of(objects, "consumer")).lake.flush_timeout_s
        pod = named(objects)["Deployment", "trimtab-consumer"]["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] >= 3 * patience + 5 + 5


def test_the_role_names_the_lease() -> None:
    """The lease that the role is about is the one that the sidecar takes."""
    for objects in both("local-lake"):
        rules = named(objects)["Role", "trimtab-sidecar"]["rules"]
        names = [r["resourceNames"] for r in rules if r["resources"] == ["leases"] and len(r) == 4]
        assert names == [[ScaleTargetRef(WorkloadKind.DEPLOYMENT, "trimtab-consumer", "trimtab").lease_name]]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sidecar.replicas", "0", "at '/sidecar/replicas': minimum: got 0, want 1"),
        ("sidecars", "2", "'sidecars' not allowed"),
        ("capacity", "fast", 'capacity: "fast" is no rate; write one like 2.3 MB/s'),
        ("kafka.bootstrap", "kafka", 'kafka.bootstrap: "kafka" has no port; write host:port'),
        ("sidecar.settings.bootstrap", "b:1", "is the chart's to set: see kafka.bootstrap"),
        (r"consumer.settings.group\.id", "g", "is the chart's to set: see group"),
        ("sidecar.settings.maximum", "9", "sidecar.settings.maximum is not a setting"),
        ("consumer.volume.enabled", "true", "set consumer.settings.lake\\.warehouse=/lake and"),
        (r"consumer.settings.lake\.warehouse", "/lake", "set consumer.volume.enabled"),
    ],
)
def test_the_chart_says_what_is_wrong(name: str, value: str, said: str) -> None:
    """A value that cannot be is an error that names it, in plain words, when it is rendered."""
    with pytest.raises(CalledProcessError) as refused:
        chart({name: value})
    assert said in refused.value.stderr
    assert "'not' failed" not in refused.value.stderr


def test_the_chart_says_all_that_is_wrong_at_once() -> None:
    """Two mistakes are two lines of one error."""
    with pytest.raises(CalledProcessError) as refused:
        chart({"capacity": "fast", "sidecar.settings.maximum": "9"})
    assert len(re.findall(r"^- ", refused.value.stderr, re.MULTILINE)) == 2


def test_the_chart_knows_the_sidecars_settings() -> None:
    """Its list has the names that the sidecar has; what the chart sets itself is not among them."""
    body = yaml.safe_load((CHART / "files" / "settings.yaml").read_text())
    assert sorted([*body["known"], *body["sidecar"]]) == sorted(
        s.name for s in list_settings(SidecarSettings)
    )


def test_the_brokers_ports_are_asked_for_once() -> None:
    """Network policies let through what the bootstrap servers name."""
    for body in chart({"kafka.bootstrap": r"one:9093\,two:9094\,three:9093"}):
        if body["kind"] == "NetworkPolicy":
            ports = [p["port"] for rule in body["spec"]["egress"] for p in rule["ports"]]
            assert [port for port in ports if 9000 < port < 9999] == [9093, 9094]


def test_another_release_has_other_names() -> None:
    """Two releases of the chart in one namespace have no object in common."""
    first, second = named(chart({}, "orders")), named(chart({}, "clicks"))
    assert not first.keys() & second.keys()
    rules = second["Role", "clicks-trimtab-sidecar"]["rules"]
    leases = [r.get("resourceNames") for r in rules if r["resources"] == ["leases"]]
    assert ["trimtab-deployment-clicks-trimtab-consumer"] in leases


def test_the_rules_for_the_operator_are_the_plain_ones() -> None:
    """The PrometheusRule holds the groups of deploy/prometheus/rules.yaml."""
    plain = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    for objects in both("two-sidecars"):
        assert named(objects)["PrometheusRule", "trimtab"]["spec"] == plain


def test_every_credential_is_a_file_of_the_secret() -> None:
    """What the commented settings name as a file lies where the secret is mounted."""
    base = DEPLOY / "kustomize" / "base"
    mounts = set()
    for pod in pods([*yaml.safe_load_all((base / "consumer.yaml").read_text())][:2]):
        mounts = {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    for file in ("ingest.yaml", "sidecar.yaml"):
        text = (base / "config" / file).read_text()
        files = re.findall(r"location: (\S+)", text)
        assert len(files) == 3
        assert {str(Path(f).parent) for f in files} <= mounts
