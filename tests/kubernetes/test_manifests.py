"""The rendered `deploy/`, without an API server: chart and overlays are equal."""

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
from trimtab.common.settings.settings_model import list_settings
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.sidecar.settings.group_list import load_settings_of_one_group
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.kubernetes.api_client import ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind

pytestmark = pytest.mark.kubernetes

RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def both(name: str) -> list[list[Object]]:
    return [overlay(name), chart(VALUES[name])]


def pods(objects: Iterable[Object]) -> Iterator[dict[str, Any]]:
    return (o["spec"]["template"]["spec"] for o in objects if o["kind"] == "Deployment")


def test_the_chart_passes_helm_lint() -> None:
    """Helm's linter finds no error and no warning."""
    assert "0 chart(s) failed" in lint()


@pytest.mark.parametrize("name", OVERLAYS)
def test_chart_and_overlay_are_the_same(name: str) -> None:
    """The chart renders what the overlay renders: roles, security, probes, everything."""
    kustomized, charted = (
        {key: essence(body) for key, body in named(objects).items()} for objects in both(name)
    )
    kustomized.pop(("Namespace", "trimtab"))  # helm's --create-namespace
    assert sorted(charted) == sorted(kustomized)
    for key, body in kustomized.items():
        assert charted[key] == body, key


@pytest.mark.parametrize("name", OVERLAYS)
def test_probes_need_no_token(name: str) -> None:
    """Without TLS they use plain text, and not /metrics, which may need a token."""
    for objects in both(name):
        assert {(p["path"], p["scheme"]) for p in probes(objects)} == {
            ("/healthz", "HTTP"),
            ("/readyz", "HTTP"),
        }


def test_probes_and_monitors_use_tls_and_token(tmp_path: Path) -> None:
    """Probes and Prometheus use HTTPS and the token; component and chart are equal."""
    kustomized, charted = named(encrypted(tmp_path)), named(chart(TLS))
    assert {p["scheme"] for p in probes(kustomized.values())} == {"HTTPS"}
    assert len(list(probes(kustomized.values()))) == 4
    monitors = ("ServiceMonitor", "trimtab-sidecar"), ("PodMonitor", "trimtab-consumer")
    for key in monitors:
        assert essence(charted[key]) == essence(kustomized[key])
        spec = charted[key]["spec"]
        (endpoint,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
        assert endpoint["scheme"] == "https"
        assert endpoint["authorization"] == {"credentials": {"name": "trimtab-kafka", "key": "token"}}
    assert sorted(map(str, probes(charted.values()))) == sorted(map(str, probes(kustomized.values())))


def test_a_token_that_prometheus_lacks_is_rejected() -> None:
    """The chart names the value to set, instead of rendering monitors that get 401."""
    token = {"sidecar.settings.token-file": "/token"}
    assert chart(token)
    with pytest.raises(CalledProcessError) as refused:
        chart({**token, "monitoring.enabled": "true"})
    assert "set monitoring.sidecar.authorization" in refused.value.stderr


def probes(objects: Iterable[Object]) -> Iterator[dict[str, Any]]:
    """Yield the requests of probes."""
    for pod in pods(objects):
        (container,) = pod["containers"]
        yield from (b["httpGet"] for key, b in container.items() if key.endswith("Probe"))


def essence(body: Object) -> Any:
    """Return an object without the names and labels of the tool."""
    if body["kind"] == "ConfigMap":
        files = {file: yaml.safe_load(text) for file, text in body["data"].items()}
        return {file: _stripped(text) if "kind" in text else text for file, text in files.items()}
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
def test_the_rendered_settings_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumer and sidecar accept the settings in the config maps, which agree."""
    monkeypatch.delenv("TRIMTAB_INSTANCE", raising=False)
    for objects in both(name):
        consumer = settings_of(objects, "consumer")
        written = settings_of(objects, "sidecar")
        sidecar = load_settings_of_one_group(None, {**written, "group": consumer["group.id"]})
        read = ingest.parse_ingest_settings(consumer)
        assert (consumer["group.id"], read.topics) == (sidecar.group, sidecar.topics)
        (capacity,) = {one["capacity"] for one in written.get("groups", [written])}
        assert consumer["trimtab.capacity"] == capacity
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
def test_pods_have_minimal_rights(name: str) -> None:
    """No root, no writable root file system, no capability, and a token only for who uses Kubernetes' API."""
    with_token = {"sidecar", *(["consumer"] if name == "spark-executors" else [])}
    for objects in both(name):
        found = list(pods(objects))
        assert len(found) == 2
        for pod in found:
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            (container,) = pod["containers"]
            assert container["securityContext"] == RESTRICTED
            assert pod["automountServiceAccountToken"] == (container["name"] in with_token)
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]  # noqa: S108 - a mount


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_grace_period_covers_a_hanging_lake(name: str) -> None:
    """A terminating consumer has as much time as its own timeouts add up to."""
    for objects in both(name):
        patience = ingest.parse_ingest_settings(settings_of(objects, "consumer")).lake.flush_timeout_s
        pod = named(objects)["Deployment", "trimtab-consumer"]["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] >= 3 * patience + 5 + 5


def test_the_role_names_the_lease() -> None:
    """The role covers the lease that the sidecar uses."""
    for objects in both("local-lake"):
        rules = named(objects)["Role", "trimtab-sidecar"]["rules"]
        names = [r["resourceNames"] for r in rules if r["resources"] == ["leases"] and len(r) == 4]
        assert names == [[ScaleTargetRef(WorkloadKind.DEPLOYMENT, "trimtab-consumer", "trimtab").lease_name]]


@pytest.mark.parametrize(
    ("name", "value", "message"),
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
        (r"consumer.settings.lake\.storage", "null", "consumer.settings.lake.storage is not set"),
    ],
)
def test_the_chart_rejects_invalid_values(name: str, value: str, message: str) -> None:
    """An invalid value is an error at rendering that names it in plain words."""
    with pytest.raises(CalledProcessError) as refused:
        chart({name: value})
    assert message in refused.value.stderr
    assert "'not' failed" not in refused.value.stderr


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("consumer.volume.enabled", "true", "executors cannot write to the volume"),
        (r"consumer.settings.lake\.file\.writer", "arrow", "executors would be idle"),
    ],
)
def test_the_chart_rejects_executors_without_work(name: str, value: str, message: str) -> None:
    """Executors of Spark write files to an object storage, or are left out."""
    with pytest.raises(CalledProcessError) as refused:
        chart({"consumer.executors.enabled": "true", name: value})
    assert message in refused.value.stderr


def test_executors_log_in_as_consumers_do() -> None:
    """Azure mounts a token into pods with this label."""
    label = "azure.workload.identity/use"
    objects = chart(
        {"consumer.executors.enabled": "true", r"consumer.podLabels.azure\.workload\.identity/use": "yes"}
    )
    settings = next(o["data"] for o in objects if "executor.yaml" in o.get("data", {}))
    assert yaml.safe_load(settings["executor.yaml"])["metadata"]["labels"][label] == "yes"


def test_the_chart_reports_all_errors_at_once() -> None:
    """Two mistakes are two lines of one error."""
    with pytest.raises(CalledProcessError) as refused:
        chart({"capacity": "fast", "sidecar.settings.maximum": "9"})
    assert len(re.findall(r"^- ", refused.value.stderr, re.MULTILINE)) == 2


def test_the_chart_knows_the_sidecars_settings() -> None:
    """Its list has the sidecar's setting names, except those that the chart sets itself."""
    body = yaml.safe_load((CHART / "files" / "settings.yaml").read_text())
    assert sorted([*body["known"], *body["sidecar"]]) == sorted(
        s.name for s in list_settings(SidecarSettings)
    )


def test_more_groups_are_entries_of_the_sidecars_file() -> None:
    """Its own group is the first; the role covers the workloads that the entries name, and no resource."""
    objects = chart({"groups[0].group": "billing", "groups[0].capacity": "1 MB/s"})
    body = settings_of(objects, "sidecar")
    assert [one["group"] for one in body["groups"]] == ["lake", "billing"]
    assert load_settings_of_one_group(None, {**body, "group": "billing"}).max == 10
    rules = named(objects)["Role", "trimtab-sidecar"]["rules"]
    assert [rule["verbs"] for rule in rules if "statefulsets/scale" in rule["resources"]] == [["update"]]
    assert not any("trimtab.io" in rule["apiGroups"] for rule in rules)


def test_sidecars_divide_many_groups_by_a_shard_topic() -> None:
    """The value is the setting of that name, for more replicas; alone or with KEDA it is refused."""
    many = {"groups[0].group": "billing", "groups[0].capacity": "1 MB/s", "shardTopic": "trimtab.shards"}
    objects = chart({**many, "sidecar.replicas": "5"})
    assert settings_of(objects, "sidecar")["shard-topic"] == "trimtab.shards"
    assert named(objects)["Deployment", "trimtab-sidecar"]["spec"]["replicas"] == 5
    for values, message in (
        ({"shardTopic": "trimtab.shards"}, "shardTopic divides many groups"),
        ({**many, "keda.enabled": "true"}, "shardTopic and keda.enabled"),
        ({"sidecar.replicas": "4"}, "sidecar.replicas is above 3"),
        ({**many, "shardTopic": "a b"}, "shardTopic"),
    ):
        with pytest.raises(CalledProcessError) as refused:
            chart(values)
        assert message in refused.value.stderr


def test_network_policies_allow_the_brokers_ports() -> None:
    """Network policies allow the ports of the bootstrap servers, each once."""
    for body in chart({"kafka.bootstrap": r"one:9093\,two:9094\,three:9093"}):
        if body["kind"] == "NetworkPolicy":
            ports = [p["port"] for rule in body["spec"]["egress"] for p in rule["ports"]]
            assert [port for port in ports if 9000 < port < 9999] == [9093, 9094]


def test_another_release_has_other_names() -> None:
    """Two releases of the chart in one namespace share no object."""
    first, second = named(chart({}, "orders")), named(chart({}, "clicks"))
    assert not first.keys() & second.keys()
    rules = second["Role", "clicks-trimtab-sidecar"]["rules"]
    leases = [r.get("resourceNames") for r in rules if r["resources"] == ["leases"]]
    assert ["trimtab-deployment-clicks-trimtab-consumer"] in leases


def test_the_operators_rules_equal_the_plain_ones() -> None:
    """The PrometheusRule has the groups of deploy/prometheus/rules.yaml."""
    plain = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    for objects in both("two-sidecars"):
        assert named(objects)["PrometheusRule", "trimtab"]["spec"] == plain


def test_every_credential_is_a_file_of_the_secret() -> None:
    """Files named in commented settings are in the folder where the secret is mounted."""
    base = DEPLOY / "kustomize" / "base"
    mounts = set()
    for pod in pods([*yaml.safe_load_all((base / "consumer.yaml").read_text())][:2]):
        mounts = {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    for file in ("ingest.yaml", "sidecar.yaml"):
        text = (base / "config" / file).read_text()
        files = re.findall(r"location: (\S+)", text)
        assert len(files) == 3
        assert {str(Path(f).parent) for f in files} <= mounts
