"""What `trimtab init` finds out about a group, and the files made from it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import yaml

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.settings.settings_model import format_byte_rate
from trimtab.common.units import format_bytes, format_count, format_rate
from trimtab.sidecar.custom_resource.names import API_GROUP, API_VERSION, KIND
from trimtab.sidecar.model.observation import ObservedGroup

OWN_ASSIGNOR: Final = "trimtab"  # the protocol name of our consumers and plugins
MIN_MAX_REPLICAS: Final = 4
GROWTH: Final = 2  # most replicas, as a multiple of the present members
# Two stabilization windows of a scale-down by the HPA: one passes before it, one shows its effect.
COMPARISON_MIN_S: Final = 600.0
KEDA_SERVICE: Final = "trimtab-sidecar"  # the Service of the deployed sidecar, deploy/kustomize
KEDA_PORT: Final = 6000
KEDA_POLLING_S: Final = 10  # as in examples/keda.yaml


@dataclass(frozen=True, slots=True)
class FoundWorkload:
    """The Deployment or StatefulSet whose pods are the group's members."""

    kind: str  # "deployment" or "statefulset"
    name: str
    namespace: str
    replicas: int
    scaled_object: Mapping[str, Any] | None = None  # KEDA's, if one scales the workload
    rivals: Sequence[str] = ()  # what else scales it, such as "HorizontalPodAutoscaler orders"
    scaler_resources: Sequence[Mapping[str, Any]] | None = None  # the namespace's; None: not defined
    consumers_per_replica: int = 1


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Outcome of one contender on the recorded write rates."""

    name: str
    mean_consumers: float
    late_percent: float
    moves_per_hour: float


@dataclass(frozen=True, slots=True)
class GroupFindings:
    """A live group, as far as it tells."""

    bootstrap: str
    group: str
    observed: ObservedGroup
    loads: Mapping[TopicPartition, PartitionLoad]
    protocol: str  # the assignor that the members agreed on; "" if none, or if the broker assigns
    plan_capacity: float | None  # bytes/s, of the plan in force
    given_capacity: float | None  # bytes/s, by the user
    kafka: Mapping[str, Any]  # librdkafka's settings that reach the brokers
    workload: FoundWorkload | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of the group, sorted."""
        return tuple(sorted({partition.topic for partition in self.loads}))

    @property
    def is_new_protocol(self) -> bool:
        """Whether the broker assigns (KIP-848)."""
        return any(member.target_partitions is not None for member in self.observed.members)

    @property
    def write_rate(self) -> float:
        """Known write rates together, in bytes/s."""
        return sum(load.bytes_per_s or 0.0 for load in self.loads.values())

    @property
    def backlog(self) -> float:
        """Known backlog in bytes."""
        return sum(load.backlog_bytes or 0.0 for load in self.loads.values())


class ChosenCapacity(NamedTuple):
    """Capacity of a consumer in bytes/s, and its source."""

    bytes_per_s: float
    source: str
    is_known: bool = True  # False: a lower bound, by which nothing is scaled


def choose_capacity(findings: GroupFindings) -> ChosenCapacity | None:
    """Return the capacity of a consumer; None for an idle group without one."""
    if findings.given_capacity is not None:
        return ChosenCapacity(findings.given_capacity, "as given")
    if findings.plan_capacity is not None:
        return ChosenCapacity(findings.plan_capacity, "of the plan in force")
    stated = [member.capacity for member in findings.observed.members if member.capacity]
    if stated:
        return ChosenCapacity(min(stated), "the least that a member states")
    rates = [
        sum(
            findings.loads[one].bytes_per_s or 0.0 for one in member.owned_partitions if one in findings.loads
        )
        for member in findings.observed.members
    ]
    busiest = max(rates, default=0.0) or findings.write_rate
    if not busiest:
        return None
    text = "what the busiest member reads now, so a lower bound: trimtab measure-capacity measures it"
    return ChosenCapacity(float(f"{busiest:.2g}"), text, is_known=False)


def choose_carrier(findings: GroupFindings) -> tuple[dict[str, Any], str]:
    """Return the settings by which the clients follow plans, and the reason."""
    if findings.is_new_protocol:
        return {"protocol": "consumer"}, "the brokers assign: they need the plugin, docs/any-client.md"
    if OWN_ASSIGNOR in findings.protocol:
        return {}, "the members' own assignor follows plans"
    if not findings.observed.members:
        return {"lead": True}, "no member now; clients of any kind follow a sidecar that leads"
    name = findings.protocol or "their own"
    return {"lead": True}, f"the members assign by {name}: the sidecar leads the group, docs/any-client.md"


def choose_limits(findings: GroupFindings) -> tuple[int, int]:
    """Return the fewest and the most replicas."""
    spec = ((findings.workload and findings.workload.scaled_object) or {}).get("spec", {})
    most = min(len(findings.loads), max(MIN_MAX_REPLICAS, GROWTH * len(findings.observed.members)))
    most = -(-most // _count_per_replica(findings))
    return int(spec.get("minReplicaCount", 1)), int(spec.get("maxReplicaCount", max(1, most)))


def _count_per_replica(findings: GroupFindings) -> int:
    return findings.workload.consumers_per_replica if findings.workload else 1


def choose_target(findings: GroupFindings, capacity: ChosenCapacity) -> tuple[dict[str, Any], str]:
    """Return the settings of the replica target, and the reason."""
    found = findings.workload
    if found is None:
        return {"target": "none"}, "no workload was found: plans are published, the count is advice"
    target = "keda" if found.scaled_object else "kubernetes"
    if found.rivals:
        rivals = " and ".join(found.rivals)
        return {
            "target": "none"
        }, f"{rivals} scales {found.kind}/{found.name}: delete it before target: {target}"
    if not capacity.is_known:
        return {
            "target": "none"
        }, f"today's rate is no capacity to scale by: set capacity, then target: {target}"
    reason = f"its pods are the members, {format_count(found.replicas, 'replica')} now"
    more = {"grpc-host": "0.0.0.0"} if found.scaled_object else {}  # noqa: S104 - KEDA is another pod
    workload = f"{found.kind}/{found.name}"
    return {"target": target, "workload": workload, "namespace": found.namespace, **more}, reason


def render_sidecar_settings(findings: GroupFindings, capacity: ChosenCapacity) -> str:
    """Return sidecar.yaml, each line with its reason."""
    target, target_reason = choose_target(findings, capacity)
    rows: list[tuple[str, Any, str]] = [
        ("bootstrap", findings.bootstrap, ""),
        *_list_group_rows(findings, capacity),
        *_explain_first(target, target_reason),
        *([("kafka", dict(findings.kafka), "")] if findings.kafka else []),
    ]
    head = (
        "# Settings of `trimtab sidecar -c sidecar.yaml`, written by trimtab init; docs/sidecar.md has all.\n"
    )
    return head + "".join(_render_row(*row) for row in rows)


def _list_group_rows(findings: GroupFindings, capacity: ChosenCapacity) -> list[tuple[str, Any, str]]:
    """Return the settings that a file and a resource have in common, each with its reason."""
    carrier, carrier_reason = choose_carrier(findings)
    least, most = choose_limits(findings)
    several = _count_per_replica(findings)
    return [
        ("group", findings.group, f"{format_count(len(findings.observed.members), 'member')} now"),
        ("topics", list(findings.topics), format_count(len(findings.loads), "partition")),
        ("capacity", format_byte_rate(capacity.bytes_per_s), capacity.source),
        ("min", least, ""),
        ("max", most, "a partition has one consumer at most"),
        *([("consumers-per-replica", several, "members of a pod now")] if several > 1 else []),
        *_explain_first(carrier, carrier_reason),
    ]


def _explain_first(settings: Mapping[str, Any], reason: str) -> list[tuple[str, Any, str]]:
    """Return the rows of settings that have one reason, which stands at the first."""
    return [(name, value, "" if at else reason) for at, (name, value) in enumerate(settings.items())]


def find_present_resource(findings: GroupFindings) -> str:
    """Return the name of the ConsumerGroupScaler that has the group already; "" if none has."""
    resources = (findings.workload and findings.workload.scaler_resources) or ()
    names = (str(one["metadata"]["name"]) for one in resources if one["spec"].get("group") == findings.group)
    return next(names, "")


def is_resource_wanted(findings: GroupFindings, capacity: ChosenCapacity) -> bool:
    """Return whether a resource is possible, may scale, and none has the group yet."""
    found = findings.workload
    is_defined = found is not None and found.scaler_resources is not None
    return is_defined and may_scale(findings, capacity) and not find_present_resource(findings)


def may_scale(findings: GroupFindings, capacity: ChosenCapacity) -> bool:
    """Return whether the written settings scale the workload."""
    return bool(choose_target(findings, capacity)[0]["target"] != "none")


def render_scaler_resource(findings: GroupFindings, workload: FoundWorkload, capacity: ChosenCapacity) -> str:
    """Return the ConsumerGroupScaler, in place of sidecar.yaml where a sidecar reads such resources."""
    name = f"{workload.kind}/{workload.name}"
    rows = [
        *_list_group_rows(findings, capacity),
        *([("target", "keda", "its ScaledObject asks the sidecar")] if workload.scaled_object else []),
        ("workload", name, choose_target(findings, capacity)[1]),
    ]
    metadata = {"name": workload.name, "namespace": workload.namespace}
    top = {"apiVersion": f"{API_GROUP}/{API_VERSION}", "kind": KIND, "metadata": metadata}
    head = (
        f"# For a sidecar with `custom-resources: true` and the bootstrap {findings.bootstrap}, written by\n"
        "# trimtab init; docs/custom-resource.md has all fields.\n"
    )
    body = yaml.safe_dump(top, sort_keys=False)
    return f"{head}{body}spec:\n" + "".join(f"  {_render_row(*row)}" for row in rows)


def _render_row(name: str, value: Any, reason: str) -> str:
    text = yaml.safe_dump({name: value}, default_flow_style=True, width=10_000, allow_unicode=True).strip()
    return f"{text[1:-1]}{f'  # {reason}' if reason else ''}\n"


def render_ingest_settings(findings: GroupFindings, capacity: ChosenCapacity) -> str:
    """Return ingest.yaml: the same topics into tables, by a group of its own."""
    rows: list[tuple[str, Any, str]] = [
        ("bootstrap.servers", findings.bootstrap, ""),
        ("group.id", f"{findings.group}-lake", "its own group: the present one keeps its offsets"),
        ("topics", list(findings.topics), ""),
        ("lake.warehouse", "./lake", "a folder; docs/storage.md has S3, GCS, ADLS and catalogs"),
        ("lake.table", "lake.{topic}", ""),
        ("trimtab.capacity", format_byte_rate(capacity.bytes_per_s), capacity.source),
        *((name, value, "") for name, value in findings.kafka.items()),
    ]
    head = "# Settings of `trimtab ingest --config ingest.yaml`, by trimtab init; docs/lake.md has all.\n"
    return head + "".join(_render_row(*row) for row in rows)


def render_scaled_object(findings: GroupFindings, workload: FoundWorkload) -> str:
    """Return the ScaledObject with Trimtab's sidecar as its only trigger, and without windows of its own."""
    body = strip_server_fields(workload.scaled_object or {})
    trigger = {
        "scalerAddress": f"{KEDA_SERVICE}.{workload.namespace}.svc:{KEDA_PORT}",
        "bootstrapServers": findings.bootstrap,
        "consumerGroup": findings.group,
        "topic": ",".join(findings.topics),
    }
    at_once = {"stabilizationWindowSeconds": 0, "tolerance": 0}  # the sidecar has windows and tolerance
    behavior = {"behavior": {"scaleUp": dict(at_once), "scaleDown": dict(at_once)}}
    body["spec"] |= {
        "pollingInterval": KEDA_POLLING_S,
        "advanced": {"horizontalPodAutoscalerConfig": behavior},
        "triggers": [{"type": "external-push", "metadata": trigger}],
    }
    return yaml.safe_dump(body, sort_keys=False)


def strip_server_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource without what the API server adds, so that it can be applied again."""
    metadata = {
        name: body["metadata"][name] for name in ("name", "namespace", "labels") if name in body["metadata"]
    }
    return {
        "apiVersion": body.get("apiVersion", "keda.sh/v1alpha1"),
        "kind": body.get("kind", "ScaledObject"),
        "metadata": metadata,
        "spec": dict(body["spec"]),
    }


def render_way_back(findings: GroupFindings, capacity: ChosenCapacity) -> str:
    """Return way-back.md: the commands that leave everything as it was."""
    return f"""# The way back for group {findings.group}

`trimtab init` changed nothing. Once a sidecar has run:

1. {_describe_sidecar_stop(findings, capacity)} The consumers read on. Where it led, a member leads
   within a minute.
2. {_describe_count_restore(findings.workload if may_scale(findings, capacity) else None)}
3. If no other group has a sidecar, delete the topics `trimtab.plans`, `trimtab.write-rates` and
   `trimtab.decisions`.
"""


def _describe_sidecar_stop(findings: GroupFindings, capacity: ChosenCapacity) -> str:
    stop = "Stop the sidecar with SIGTERM."
    found = findings.workload
    if found is None or not is_resource_wanted(findings, capacity):
        return stop
    return f"{stop} With the resource: `kubectl -n {found.namespace} delete {KIND} {found.name}`."


def _describe_count_restore(found: FoundWorkload | None) -> str:
    if found is None:
        return "No count was set, so there is none to set back."
    if found.scaled_object:
        return "Let KEDA's scaler decide again: `kubectl apply -f scaledobject.before.yaml`"
    command = f"kubectl -n {found.namespace} scale {found.kind}/{found.name} --replicas={found.replicas}"
    return f"Set the count that it had: `{command}`"


def describe_findings(findings: GroupFindings, capacity: ChosenCapacity) -> list[str]:
    """Return what was found, a line each."""
    members = format_count(len(findings.observed.members), "member")
    partitions = format_count(len(findings.loads), "partition")
    lines = [
        f"group {findings.group}: {members}, {partitions} of {', '.join(findings.topics)}",
        f"traffic {format_rate(findings.write_rate)}, backlog {format_bytes(findings.backlog)}",
        f"capacity {format_rate(capacity.bytes_per_s)}: {capacity.source}",
        f"plans: {choose_carrier(findings)[1]}",
        f"replicas: {choose_target(findings, capacity)[1]}",
    ]
    found = findings.workload
    if found is not None:
        several = found.consumers_per_replica
        each = f", {format_count(several, 'member')} in each pod" if several > 1 else ""
        lines.append(f"workload {found.namespace}/{found.kind}/{found.name}{each}")
    if present := find_present_resource(findings):
        lines.append(f"{KIND} {present} has the group already: kubectl edit {KIND} {present}")
    return lines


def explain_no_comparison(capacity: ChosenCapacity, seconds: float) -> str:
    """Return why a recording of `seconds` allows no comparison; "" if it does."""
    if not capacity.is_known:
        return "no comparison: it needs a capacity that the consumers were measured to have; give --capacity"
    if seconds < COMPARISON_MIN_S:
        return (
            f"no comparison: {seconds:g} s hold no scale-down, which follows minutes of less load; "
            f'record for --duration "{COMPARISON_MIN_S / 60:g} min" or longer'
        )
    return ""


def describe_saving(results: Sequence[ReplayResult], members: int, seconds: float) -> list[str]:
    """Return the expected saving by replay of the recorded write rates."""
    lines = [
        f"replay of the last {seconds:g} s ({format_count(members, 'consumer runs', 'consumers run')} now):"
    ]
    for one in results:
        saved = f", {1 - one.mean_consumers / members:.0%} fewer" if one.mean_consumers < members else ""
        figures = f"{one.late_percent:.1f} % late, {one.moves_per_hour:.0f} moves an hour"
        lines.append(f"  {one.name}: {one.mean_consumers:.1f} consumers on average{saved}, {figures}")
    return lines
