"""What `trimtab init` concludes from what a group tells."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from trimtab.assignor.model import TopicPartition
from trimtab.cli.init.group_findings import (
    ChosenCapacity,
    FoundWorkload,
    GroupFindings,
    ReplayResult,
    choose_capacity,
    choose_carrier,
    choose_limits,
    describe_findings,
    describe_saving,
    explain_no_comparison,
    is_resource_wanted,
    render_ingest_settings,
    render_scaled_object,
    render_scaler_resource,
    render_sidecar_settings,
    render_way_back,
)
from trimtab.cli.init.run import fill_write_rates, remove_stale_files
from trimtab.cli.init.workload_search import (
    count_consumers_per_pod,
    find_scaled_object,
    list_scaler_resources,
)
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.sidecar.custom_resource.names import to_setting_values
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.settings.settings import load_settings

PARTITIONS = tuple(TopicPartition("orders", number) for number in range(4))
LOADS = {one: PartitionLoad(1000.0 * (one.partition + 1), 1.0, 500.0, 5) for one in PARTITIONS}
MEMBERS = (
    ObservedMember("1", "one", frozenset(PARTITIONS[:2])),
    ObservedMember("2", "two", frozenset(PARTITIONS[2:])),
)
FINDINGS = GroupFindings(
    bootstrap="kafka:9092",
    group="shop",
    observed=ObservedGroup(GroupState.STABLE, MEMBERS),
    loads=LOADS,
    protocol="range",
    plan_capacity=None,
    given_capacity=None,
    kafka={},
)
SCALED_OBJECT: dict[str, Any] = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "metadata": {"name": "shop", "namespace": "sales", "uid": "7", "resourceVersion": "9"},
    "spec": {
        "scaleTargetRef": {"name": "shop"},
        "minReplicaCount": 2,
        "maxReplicaCount": 7,
        "triggers": [{"type": "kafka", "metadata": {"consumerGroup": "shop", "lagThreshold": "100"}}],
    },
    "status": {"health": {}},
}
WORKLOAD = FoundWorkload("deployment", "shop", "sales", 3)
MEASURED = ChosenCapacity(7000.0, "measured")
LOWER_BOUND = ChosenCapacity(7000.0, "what the busiest member reads now", is_known=False)


def load_written(findings: GroupFindings, folder: Path) -> Any:
    """Return the settings that a sidecar reads from the written file."""
    path = folder / "sidecar.yaml"
    path.write_text(render_sidecar_settings(findings, MEASURED))
    return load_settings(path, {})


@pytest.mark.parametrize(
    ("given", "plan", "stated", "expected"),
    [(5.0, 4.0, 3.0, 5.0), (None, 4.0, 3.0, 4.0), (None, None, 3.0, 3.0), (None, None, None, 7000.0)],
)
def test_the_best_source_of_the_capacity_wins(
    given: float | None, plan: float | None, stated: float | None, expected: float
) -> None:
    """The user's, else the plan's, else the members' own, else what the busiest member reads."""
    members = (MEMBERS[0], replace(MEMBERS[1], capacity=stated))
    observed = replace(FINDINGS.observed, members=members)
    findings = replace(FINDINGS, given_capacity=given, plan_capacity=plan, observed=observed)
    chosen = choose_capacity(findings)
    assert chosen is not None
    assert (chosen.bytes_per_s, chosen.is_known) == (expected, bool(given or plan or stated))


def test_an_idle_group_tells_no_capacity() -> None:
    """Without a write rate nothing tells a capacity."""
    assert (
        choose_capacity(replace(FINDINGS, loads=dict.fromkeys(LOADS, PartitionLoad(0.0, 0.0, 0.0, 0))))
        is None
    )


def test_clients_follow_as_they_can() -> None:
    """Own clients follow plans, others are led, those of the new protocol need the plugin."""
    new = replace(MEMBERS[0], target_partitions=frozenset(PARTITIONS))
    assert choose_carrier(replace(FINDINGS, protocol="trimtab"))[0] == {}
    assert choose_carrier(FINDINGS)[0] == {"lead": True}
    by_broker = replace(FINDINGS, observed=replace(FINDINGS.observed, members=(new,)))
    assert choose_carrier(by_broker)[0] == {"protocol": "consumer"}


def test_pods_of_several_members_are_counted_and_written(tmp_path: Path) -> None:
    """By the pods' names as client ids, or else by their addresses; a limit is one of pods."""
    named = [ObservedMember(str(n), name) for n, name in enumerate(["a", "a", "b/1", "b/2"])]
    pods = [("a", "10.0.0.1"), ("b", "10.0.0.2")]
    assert count_consumers_per_pod(named, pods) == 2
    by_host = [ObservedMember(str(n), f"c-{n}", host=f"10.0.0.{n % 2 + 1}") for n in range(6)]
    assert count_consumers_per_pod(by_host, pods) == 3
    assert (
        count_consumers_per_pod(by_host[::2], [("a", "10.0.0.1"), ("b", "10.0.0.1"), ("c", "10.0.0.1")]) == 1
    )
    stale = [ObservedMember(name * 2, name) for name in "abc"]
    stale.append(ObservedMember("old", "a"))
    assert count_consumers_per_pod(stale, [(name, "") for name in "abcd"]) == 1, (
        "a member that left, a pod that starts"
    )
    findings = replace(FINDINGS, workload=replace(WORKLOAD, consumers_per_replica=2))
    written = load_written(findings, tmp_path)
    assert (written.consumers_per_replica, written.max) == (2, 2)
    assert "workload sales/deployment/shop, 2 members in each pod" in describe_findings(findings, MEASURED)


def test_the_written_settings_are_valid(tmp_path: Path) -> None:
    """A sidecar reads what was found, with and without a workload; ingest has a group of its own."""
    plain = load_written(FINDINGS, tmp_path)
    assert (plain.group, plain.capacity, plain.lead, plain.target) == ("shop", 7000.0, True, "none")
    scaled = load_written(replace(FINDINGS, workload=WORKLOAD), tmp_path)
    assert (scaled.target, str(scaled.workload), scaled.namespace) == (
        "kubernetes",
        "deployment/shop",
        "sales",
    )
    assert choose_limits(FINDINGS) == (1, 4)
    assert yaml.safe_load(render_ingest_settings(FINDINGS, MEASURED))["group.id"] == "shop-lake"
    assert "--replicas=3" in render_way_back(replace(FINDINGS, workload=WORKLOAD), MEASURED)


def test_a_reason_stands_once() -> None:
    """At the first of the settings that it explains, not at each."""
    text = render_sidecar_settings(replace(FINDINGS, workload=WORKLOAD), MEASURED)
    assert text.count("its pods are the members, 3 replicas now") == 1
    one = replace(FINDINGS, observed=ObservedGroup(GroupState.STABLE, MEMBERS[:1]))
    assert "# 1 member now" in render_sidecar_settings(one, MEASURED)


def test_resources_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    """`kubectl apply -f .` would apply them; what leads back stays."""
    for name in ("consumergroupscaler.yaml", "scaledobject.yaml", "scaledobject.before.yaml", "sidecar.yaml"):
        (tmp_path / name).write_text("old")
    assert remove_stale_files(tmp_path, {"sidecar.yaml", "scaledobject.yaml"}) == ["consumergroupscaler.yaml"]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"scaledobject.yaml", "scaledobject.before.yaml", "sidecar.yaml"}


class RefusedError(Exception):
    """An answer of the API server, as the client raises it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def refuse_lists(error: RefusedError, definition: RefusedError | None = None) -> Any:
    """Return a client of an API server that refuses to list resources."""

    def refuse(found: RefusedError | None) -> None:
        if found is not None:
            raise found

    api = SimpleNamespace(
        list_namespaced_custom_object=lambda *_, **__: refuse(error),
        get_api_resources=lambda *_, **__: refuse(definition),
    )
    return SimpleNamespace(CustomObjectsApi=lambda _: api, ApiException=RefusedError)


@pytest.mark.parametrize(
    ("client", "resources", "told"),
    [
        (refuse_lists(RefusedError(404, "Not Found")), None, ""),
        (refuse_lists(RefusedError(403, "Forbidden")), (), ""),
        (refuse_lists(RefusedError(403, "Forbidden"), RefusedError(404, "Not Found")), None, ""),
        (refuse_lists(RefusedError(500, "Internal")), None, "could not be listed: 500 Internal"),
        (refuse_lists(RefusedError(403, "No"), RefusedError(503, "Busy")), None, "listed: 503 Busy"),
    ],
)
def test_only_a_404_means_that_a_resource_is_not_defined(client: Any, resources: object, told: str) -> None:
    """Another answer is told by name: the cluster may define the resource."""
    found, why = list_scaler_resources(client, None, "sales")
    assert found == resources
    assert why.endswith(told) if told else not why


def test_a_scaled_object_that_may_not_be_read_is_told() -> None:
    """Else KEDA and the sidecar would scale one workload."""
    refused = refuse_lists(RefusedError(403, "Forbidden"))
    found, why = find_scaled_object(refused, None, "Deployment", "shop", "sales")
    assert found is None
    assert why == "ScaledObjects of namespace sales could not be listed: 403 Forbidden"
    absent = refuse_lists(RefusedError(404, "Not Found"))
    assert find_scaled_object(absent, None, "Deployment", "shop", "sales") == (None, "")


def test_a_scaled_object_keeps_its_limits(tmp_path: Path) -> None:
    """KEDA's limits become the sidecar's; the new ScaledObject asks the sidecar and can be applied."""
    workload = replace(WORKLOAD, scaled_object=SCALED_OBJECT)
    findings = replace(FINDINGS, workload=workload)
    settings = load_written(findings, tmp_path)
    assert (settings.target, choose_limits(findings)) == ("keda", (2, 7))
    body = yaml.safe_load(render_scaled_object(findings, workload))
    assert "resourceVersion" not in body["metadata"]
    assert body["spec"]["maxReplicaCount"] == 7
    (trigger,) = body["spec"]["triggers"]
    assert trigger["metadata"]["scalerAddress"] == "trimtab-sidecar.sales.svc:6000"
    assert "scaledobject.before.yaml" in render_way_back(findings, MEASURED)


@pytest.mark.parametrize("scaled_object", [None, SCALED_OBJECT])
def test_a_resource_says_what_the_file_says(scaled_object: dict[str, Any] | None, tmp_path: Path) -> None:
    """Where the cluster defines ConsumerGroupScaler, one has the file's settings of the group."""
    workload = replace(WORKLOAD, scaled_object=scaled_object, scaler_resources=())
    findings = replace(FINDINGS, workload=workload)
    assert is_resource_wanted(findings, MEASURED)
    body = yaml.safe_load(render_scaler_resource(findings, workload, MEASURED))
    assert body["metadata"] == {"name": "shop", "namespace": "sales"}
    target = "keda" if scaled_object else "kubernetes"
    process = {"bootstrap": findings.bootstrap, "namespace": "sales"}
    more = {**process, "target": target, **({"grpc-host": "0.0.0.0"} if scaled_object else {})}  # noqa: S104
    assert load_settings(None, to_setting_values(body["spec"]) | more) == load_written(findings, tmp_path)
    assert "kubectl -n sales delete ConsumerGroupScaler shop" in render_way_back(findings, MEASURED)


def test_a_group_gets_one_resource() -> None:
    """Without the definition none is written, nor beside one that has the group, which is named."""
    other = {"metadata": {"name": "other"}, "spec": {"group": "other"}}
    own = {"metadata": {"name": "mine"}, "spec": {"group": "shop"}}
    assert not is_resource_wanted(FINDINGS, MEASURED)
    assert not is_resource_wanted(replace(FINDINGS, workload=WORKLOAD), MEASURED)
    assert is_resource_wanted(
        replace(FINDINGS, workload=replace(WORKLOAD, scaler_resources=(other,))), MEASURED
    )
    managed = replace(FINDINGS, workload=replace(WORKLOAD, scaler_resources=(other, own)))
    assert not is_resource_wanted(managed, MEASURED)
    assert "ConsumerGroupScaler mine has the group already" in describe_findings(managed, MEASURED)[-1]


def test_nothing_is_scaled_by_the_rate_of_today() -> None:
    """What a member reads now is a lower bound: the written settings advise, and say what is missing."""
    findings = replace(FINDINGS, workload=replace(WORKLOAD, scaled_object=SCALED_OBJECT, scaler_resources=()))
    text = render_sidecar_settings(findings, LOWER_BOUND)
    assert yaml.safe_load(text)["target"] == "none"
    assert "set capacity, then target: keda" in text
    assert not is_resource_wanted(findings, LOWER_BOUND)
    assert "No count was set" in render_way_back(findings, LOWER_BOUND)


@pytest.mark.parametrize("rival", ["HorizontalPodAutoscaler shop", "ScaledObject other"])
def test_a_workload_that_something_else_scales_is_no_target(rival: str) -> None:
    """Two autoscalers would undo each other's counts, so the sidecar only advises, and the rival is named."""
    findings = replace(FINDINGS, workload=replace(WORKLOAD, rivals=(rival,), scaler_resources=()))
    text = render_sidecar_settings(findings, MEASURED)
    assert yaml.safe_load(text)["target"] == "none"
    assert f"{rival} scales deployment/shop: delete it before target: kubernetes" in text
    assert not is_resource_wanted(findings, MEASURED)
    assert any(rival in line for line in describe_findings(findings, MEASURED))


def test_a_comparison_needs_a_capacity_and_time_for_a_scale_down() -> None:
    """A recording of a minute, or a capacity that nobody measured, promises no saving."""
    assert "record for" in explain_no_comparison(MEASURED, 60.0)
    assert "give --capacity" in explain_no_comparison(LOWER_BOUND, 3600.0)
    assert not explain_no_comparison(MEASURED, 600.0)


def test_the_saving_is_told_only_if_there_is_one() -> None:
    """Fewer consumers than now are a saving; more are not."""
    lines = describe_saving(
        [ReplayResult("steady", 1.5, 0.0, 2.0), ReplayResult("keda", 3.0, 4.0, 9.0)], 2, 60.0
    )
    assert "25% fewer" in lines[1]
    assert "fewer" not in lines[2]


def test_published_rates_fill_those_not_measured() -> None:
    """Beside a sidecar one look at the broker knows backlogs, but no rate yet."""
    first, second = PARTITIONS[:2]
    measured = {first: PartitionLoad(None, None, 500.0, 5), second: PartitionLoad(7.0, 1.0, 0.0, 0)}
    rates = {number: PartitionLoad(1000.0, 1.0) for number in range(2)}
    published = {"orders": TopicWriteRates("shop", "orders", 1.0, 10.0, "offsets", rates)}
    filled = fill_write_rates(measured, published)
    assert filled == {first: PartitionLoad(1000.0, None, 500.0, 5), second: measured[second]}
    assert fill_write_rates(measured, {}) == measured
