"""The sidecar's settings: a YAML file and flags of the same names, checked before all else.

Units are those people write ("2.3 MB/s", "30 s"). Unknown names are answered with the nearest known
one, and settings that contradict each other are named together. `kafka` holds librdkafka's names
(TLS, SASL); nothing of it is ever shown. Secrets may be references (`security.secrets`).
"""

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimtab.assignor.heuristics import registry
from trimtab.assignor.heuristics.heuristic_spec import parse_heuristic_spec
from trimtab.assignor.heuristics.steady.params import resolve_params
from trimtab.assignor.model import PlacementPolicy
from trimtab.common.control_topics.values import PLAN_TOPIC, WRITE_RATE_TOPIC
from trimtab.common.http_server import AccessPolicy, load_access_policy
from trimtab.common.kafka_security import connection
from trimtab.common.kafka_security.secrets import mask_secrets_in_errors, resolve_secrets
from trimtab.common.kmq_offset_metadata import markers_topic
from trimtab.common.units import parse_seconds
from trimtab.sidecar.decision.scaling_policy import (
    AutoscalingPolicy,
    CapacityBounds,
    FallbackBehavior,
    FallbackPolicy,
)
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.measurement.freshness import SLO_MARGIN
from trimtab.sidecar.measurement.queue_backlog import QueueKind
from trimtab.sidecar.measurement.write_rate import CatchUpPolicy
from trimtab.sidecar.reporting.decision_record import DECISION_TOPIC
from trimtab.sidecar.settings.cross_checks import (
    CheckResults,
    check_queue,
    check_scaling_rules,
    check_schedule,
    check_tolerances,
)
from trimtab.sidecar.settings.error_messages import SETTING_EXAMPLES, explain_validation_error
from trimtab.sidecar.settings.fields import (
    DurationField,
    FreshnessSloField,
    NameListField,
    PauseOption,
    RateField,
    ScalingRulesField,
    SchedulePeriodSetting,
    ToleranceField,
    ToleranceSetting,
    build_pod_rules,
    parse_paused_directions,
)

WorkloadRef = Annotated[
    str, Field(pattern=r"^(deployment|statefulset)/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
]

MAX_TCP_PORT: Final = 65535
INGEST_COMMAND: Final = (sys.executable, "-m", "trimtab.cli", "ingest", "--instance", "{instance}")


class SidecarSettings(BaseModel):
    """Everything that can be set; every default is one to start with."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )

    bootstrap: str
    group: str
    topics: NameListField = ()  # none: those that the group reads
    queue: QueueKind | None = None  # what the topic is to the workers (docs/queues.md); none: a log
    queue_markers: str | None = None  # of kmq; none: TOPIC.GROUP.markers
    kafka: dict[str, str | int | float | bool] = Field(default_factory=dict, repr=False)
    timeout: DurationField = 5.0  # of one question to the brokers

    capacity: RateField  # of one consumer, end to end
    headroom: float = 0.9  # share of it that may be filled
    heuristic: str = registry.DEFAULT_HEURISTIC
    move_cost: DurationField | None = None  # of one consumer, worth not moving one consumer's load
    source: Literal["offsets", "log-dirs"] = "offsets"
    window: DurationField = 30.0
    interval: DurationField = 10.0
    offset_reset: Literal["earliest", "latest"] | None = None  # none: as the worker config says

    min: int = 1
    max: int = 10
    scale_up_policies: ScalingRulesField = build_pod_rules(4)  # or policies as the HPA has them
    scale_down_policies: ScalingRulesField = build_pod_rules(1)
    scale_up_stabilization_window: DurationField = 0.0
    scale_down_stabilization_window: DurationField = 120.0
    cooldown: DurationField = 30.0
    tolerance: ToleranceField = ToleranceSetting()
    schedule: tuple[SchedulePeriodSetting, ...] = ()
    pause: PauseOption = "none"
    fallback: FallbackBehavior = FallbackBehavior.CURRENT
    fallback_replicas: int | None = None
    fallback_after: int = 3  # turns
    idle_after: DurationField = 300.0  # the last one goes, with min=0
    scale_up_evaluation_window: DurationField | None = None  # of consumption; 0: not looked at
    scale_up_evaluation_retry: DurationField = 600.0
    learn_capacity: bool = False
    learned_capacity_min: float = 0.5  # shares of the capacity
    learned_capacity_max: float = 2.0
    goal: FreshnessSloField | None = None  # "p99-freshness 30 s", instead of the two that follow
    catch_up_time: DurationField = 120.0
    backlog_grace: DurationField = 15.0
    drain_retry: DurationField = 60.0
    startup_timeout: DurationField = 120.0

    certify: bool = False
    certify_timeout: DurationField = 10.0  # at most, of a thread beside the decisions

    target: Literal["none", "process", "kubernetes", "keda"] = "none"
    workload: WorkloadRef | None = None  # deployment/NAME or statefulset/NAME
    namespace: str | None = None  # none: the pod's own, or the kubeconfig's
    kubeconfig: Path | None = None  # none: the pod's service account, or the usual file
    external_scaling: Literal["respect", "contest"] = "respect"
    elect: bool = True  # one of several sidecars leads, by a lease
    grpc_host: str = "127.0.0.1"  # where KEDA asks
    grpc_port: int = 6000  # 0: a free one
    grpc_tls_certificate: Path | None = None  # PEM files, of KEDA's service alone
    grpc_tls_key: Path | None = None
    grpc_client_ca: Path | None = None  # who vouches for KEDA's certificate; none: nobody is asked
    worker_config: Path | None = None
    worker_command: tuple[str, ...] = ()
    worker_stop_timeout: DurationField = 60.0
    state: Path | None = None
    stop_workers: bool = False
    dry_run: bool = False
    take_over: bool = False  # from another sidecar that steers the group, at once

    plan_topic: str = PLAN_TOPIC
    write_rate_topic: str = WRITE_RATE_TOPIC
    decision_topic: str = DECISION_TOPIC
    replication_factor: int = -1  # the brokers' default
    host: str = "127.0.0.1"
    port: int = 0  # a free one
    tls_certificate: Path | None = None  # PEM files, of the web page
    tls_key: Path | None = None
    token_file: Path | None = None  # of the web page

    @property
    def effective_heuristic(self) -> str:
        """Return the heuristic that decides: `heuristic`, tuned where `move_cost` is given.

        A decision stands for as long as changes are apart, so so many consumers may be kept.
        """
        if self.move_cost is None:
            return self.heuristic
        settings = parse_heuristic_spec(self.heuristic).settings.items()
        return f"steady:{self.move_cost_weight:g}" + "".join(f":{n}={v:g}" for n, v in settings)

    @property
    def move_cost_weight(self) -> float:
        """Return λ: how many consumers a move of one consumer's worth of load counts."""
        if self.move_cost is not None:
            return self.move_cost / max(self.cooldown, self.interval)
        named = parse_heuristic_spec(self.heuristic)
        return resolve_params(named.preset if named.base == "steady" else "").move_cost

    @property
    def catch_up(self) -> CatchUpPolicy:
        """Return how a backlog counts: what is older than a goal allows is late."""
        if self.goal is None:
            return CatchUpPolicy(self.catch_up_time, self.backlog_grace)
        return CatchUpPolicy(self.goal, self.goal * (1 - SLO_MARGIN))

    @property
    def consumption_window(self) -> float:
        """Return the seconds over which consumption is measured; 0 where it is not.

        Commits come by the batch, and several batches are to be in it.
        """
        usual = 4 * max(self.window, self.catch_up.backlog_grace)
        return usual if self.scale_up_evaluation_window is None else self.scale_up_evaluation_window

    @property
    def autoscaling_policy(self) -> AutoscalingPolicy:
        """Return what the decision goes by."""
        return AutoscalingPolicy(
            placement=PlacementPolicy(
                self.effective_heuristic, self.capacity, self.headroom, consolidate=True
            ),
            min_replicas=self.min,
            max_replicas=self.max,
            scale_up=self.scale_up_policies.build_rules(
                self.scale_up_stabilization_window, self.tolerance.out
            ),
            scale_down=self.scale_down_policies.build_rules(
                self.scale_down_stabilization_window, self.tolerance.in_
            ),
            cooldown=self.cooldown,
            paused_directions=parse_paused_directions(self.pause),
            schedule=tuple(entry.cron_period for entry in self.schedule),
            fallback=FallbackPolicy(
                self.fallback, self.fallback_replicas or 0, self.fallback_after
            ),
            idle_after=self.idle_after,
            scale_up_evaluation_window=self.consumption_window,
            scale_up_evaluation_retry=self.scale_up_evaluation_retry,
            learned_capacity_bounds=CapacityBounds(
                self.learned_capacity_min, self.learned_capacity_max
            )
            if self.learn_capacity
            else None,
            drain_retry=self.drain_retry,
            startup_timeout=self.startup_timeout,
            catch_up=self.catch_up,
            freshness_slo=self.goal,
            advisory=self.dry_run or self.target == "none",
        )

    @property
    def client_config(self) -> dict[str, Any]:
        """Return librdkafka's configuration; holds secrets."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "trimtab-sidecar",
            "log_level": 2,  # the loop itself says what does not answer, once
            "socket.timeout.ms": int(self.timeout * 1000),
            **connection.to_librdkafka_config(self.kafka),
        }

    @property
    def markers_topic(self) -> str:
        """Return the markers topic of a `kmq` queue."""
        return self.queue_markers or markers_topic(self.topics[0], self.group)

    @property
    def access_policy(self) -> AccessPolicy:
        """Return what the web page asks for. Raises SettingError."""
        return load_access_policy(self.tls_certificate, self.tls_key, self.token_file)

    @property
    def worker_argv(self) -> tuple[str, ...]:
        """Return the command that starts a worker, with "{instance}" for its name."""
        if self.worker_command:
            return self.worker_command
        return (*INGEST_COMMAND, "--config", str(cast("Path", self.worker_config).resolve()))


def list_setting_names() -> tuple[str, ...]:
    """Return the names of all settings, as they are written."""
    return tuple(name.replace("_", "-") for name in SidecarSettings.model_fields)


def load_settings(file: Path | None, flags: Mapping[str, Any]) -> SidecarSettings:
    """Read settings from a file and flags; flags that are None do not count, the others win.

    Raises SidecarSettingError.
    """
    given = read_settings_file(file)
    for name, value in flags.items():
        if value is not None:
            old = given.get(_to_setting_name(name))
            whole = {**old, **value} if isinstance(old, dict) and name == "kafka" else value
            given[_to_setting_name(name)] = whole
    with mask_secrets_in_errors(given, os.environ):
        return _validate_settings(_parse_settings(resolve_secrets(given, os.environ)))


def _validate_settings(settings: SidecarSettings) -> SidecarSettings:
    connection.check_settings(settings.kafka)
    problems = [text for broken, text in _cross_check_settings(settings) if broken]
    if problems:
        raise SidecarSettingError("; ".join(problems))
    registry.get_installed_heuristic(settings.effective_heuristic)
    if settings.offset_reset is None:
        return settings.model_copy(update={"offset_reset": _resolve_offset_reset(settings)})
    return settings


def _to_setting_name(name: str) -> str:
    return name.replace("_", "-")


def read_settings_file(file: Path | None) -> dict[str, Any]:
    """Return a file's settings unchecked; none of no file. Raises SidecarSettingError."""
    if file is None:
        return {}
    try:
        body = yaml.safe_load(file.read_text())
    except OSError as error:
        raise SidecarSettingError(
            f"config {file}: {error.strerror}; give a readable file"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise SidecarSettingError(
            f"config {file}{where}: not YAML; write 'name: value' lines"
        ) from None
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise SidecarSettingError(f"config {file}: not a mapping; write one 'name: value' a line")
    return {_to_setting_name(str(key)): value for key, value in body.items()}


def _parse_settings(given: Mapping[str, Any]) -> SidecarSettings:
    unknown = [name for name in given if name not in list_setting_names()]
    if {"bootstrap.servers", "group.id"} & set(unknown):
        raise SidecarSettingError(
            f"{' and '.join(unknown[:2])}: these are settings of a consumer, as trimtab ingest has "
            "them; the sidecar has its own file (bootstrap, group, capacity), and takes that of "
            "ingest as --worker-config"
        )
    if unknown:
        raise SidecarSettingError("; ".join(_explain_unknown_setting(name) for name in unknown))
    try:
        return SidecarSettings.model_validate(given)
    except ValidationError as error:
        raise SidecarSettingError("; ".join(explain_validation_error(error))) from None


def _explain_unknown_setting(name: str) -> str:
    near = get_close_matches(name, list_setting_names(), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(list_setting_names())}"
    return f"{name!r} is not a setting of the sidecar; {hint}"


def _cross_check_settings(s: SidecarSettings) -> CheckResults:
    """Yield whether something cannot be, and what to say about it."""
    yield not s.bootstrap.strip(), "bootstrap is empty; give host:port of a broker"
    yield not s.group.strip(), "group is empty; give the group's name"
    yield s.capacity <= 0, "capacity must be above 0; give what one consumer sustains"
    yield not 0 < s.headroom <= 1, f"headroom={s.headroom} must be above 0 and at most 1"
    yield s.interval <= 0, "interval must be above 0"
    yield s.catch_up_time <= 0, "catch-up-time must be above 0"
    yield s.timeout <= 0, "timeout must be above 0"
    yield s.certify_timeout <= 0, "certify-timeout must be above 0"
    yield s.move_cost is not None and s.move_cost <= 0, "move-cost must be above 0"
    yield (
        s.move_cost is not None and s.heuristic != "steady",
        f"move-cost tunes steady, but heuristic={s.heuristic}; leave one of the two out",
    )
    short = f"window={s.window:g} s is less than twice interval={s.interval:g} s; make it longer"
    yield s.window < 2 * s.interval, short
    yield not 0 <= s.port <= MAX_TCP_PORT, f"port={s.port} must be 0 (a free one) to {MAX_TCP_PORT}"
    yield from check_queue(s.queue, s.topics, s.queue_markers)
    shared = s.queue is QueueKind.SHARE and (s.certify or s.learn_capacity)
    yield shared, "certify and learn-capacity are about a placement, and queue=share has none"
    yield from _cross_check_limits(s)
    yield from _cross_check_target(s)
    yield from _cross_check_kubernetes(s)


def _cross_check_limits(s: SidecarSettings) -> CheckResults:
    yield s.min < 0, f"min={s.min} must be at least 0"
    yield s.max < 1, f"max={s.max} must be at least 1"
    yield s.min > s.max, f"min={s.min} is above max={s.max}; lower one or raise the other"
    yield from check_scaling_rules("scale-up-policies", s.scale_up_policies)
    yield from check_scaling_rules("scale-down-policies", s.scale_down_policies)
    yield from check_tolerances(s.tolerance)
    yield from check_schedule(s.schedule, s.min, s.max)
    idle = f"idle-after={s.idle_after:g} s is less than window={s.window:g} s of the speeds"
    yield s.min == 0 and s.idle_after < s.window, idle
    unnamed = "min=0 needs topics: nobody tells what is to be read while no replica runs"
    yield s.min == 0 and not s.topics, unnamed
    yield from _cross_check_fallback(s)
    yield from _cross_check_scale_up_evaluation(s)
    yield from _cross_check_freshness_slo(s)


def _cross_check_fallback(s: SidecarSettings) -> CheckResults:
    current, count = s.fallback is FallbackBehavior.CURRENT, s.fallback_replicas
    yield not current and count is None, f"fallback={s.fallback} needs fallback-replicas"
    unused = f"fallback-replicas={count} is given, but fallback=current; leave one of the two out"
    yield current and count is not None, unused
    outside = f"fallback-replicas={count} is not between min={s.min} and max={s.max}"
    yield count is not None and not s.min <= count <= s.max, outside
    early = (
        f"fallback-after={s.fallback_after} turns of interval={s.interval:g} s are over before a "
        f"sidecar that starts can know a speed (half of window={s.window:g} s); make it more"
    )
    yield not current and s.fallback_after * s.interval <= s.window / 2, early


def _cross_check_freshness_slo(s: SidecarSettings) -> CheckResults:
    if s.goal is None:
        return
    both = s.model_fields_set & {"catch_up_time", "backlog_grace"}
    named = " and ".join(_to_setting_name(name) for name in sorted(both))
    yield bool(both), f"{named} given, but goal sets them itself; leave one of the two out"
    short = f"goal={s.goal:g} s is less than twice interval={s.interval:g} s"
    yield s.goal < 2 * s.interval, f"{short}; what is faster than decisions cannot be kept by them"
    yield (
        not s.consumption_window,
        "goal needs an scale-up-evaluation-window above 0, over which freshness is estimated",
    )
    if s.worker_config is not None and s.worker_config.is_file():
        wait = parse_seconds(
            read_settings_file(s.worker_config).get("batch.max.age", "10 s"), "batch.max.age"
        )
        long = f"worker-config: batch.max.age={wait:g} s alone misses goal={s.goal:g} s; shorten it"
        yield wait >= s.catch_up.backlog_grace, long


def _cross_check_scale_up_evaluation(s: SidecarSettings) -> CheckResults:
    short = f"scale-up-evaluation-window={s.consumption_window:g} s is less than window={s.window:g} s; make it longer, or 0"
    yield 0 < s.consumption_window < s.window, short
    batches = (
        f"scale-up-evaluation-window={s.consumption_window:g} s is less than twice backlog-grace="
        f"{s.catch_up.backlog_grace:g} s, so it may hold no whole batch; make it longer, or 0"
    )
    yield 0 < s.consumption_window < 2 * s.catch_up.backlog_grace, batches
    low, high = s.learned_capacity_min, s.learned_capacity_max
    around = f"learned-capacity-min={low:g} and learned-capacity-max={high:g} must be around 1: shares of capacity"
    yield not 0 < low <= 1 <= high, around
    yield (
        s.learn_capacity and not s.consumption_window,
        "learn-capacity needs an scale-up-evaluation-window above 0",
    )


def _cross_check_target(s: SidecarSettings) -> CheckResults:
    process = s.target == "process"
    worker = s.worker_config is not None or bool(s.worker_command)
    yield process and not worker, "target=process needs worker-config (or worker-command)"
    yield (
        s.worker_config is not None and bool(s.worker_command),
        "worker-config and worker-command are both given; leave one out",
    )
    yield not process and worker, f"a worker is given, but target={s.target}; write target=process"
    yield process and s.state is None, "target=process needs state, the folder it keeps pids in"
    yield s.stop_workers and not process, "stop-workers needs target=process"
    missing = s.worker_config is not None and not s.worker_config.is_file()
    yield missing, f"worker-config {s.worker_config} is no file"
    yield (
        bool(s.worker_command) and not any("{instance}" in part for part in s.worker_command),
        f"worker-command has no {{instance}}; write {SETTING_EXAMPLES['worker-command']}",
    )


def _cross_check_kubernetes(s: SidecarSettings) -> CheckResults:
    kubernetes = s.target in ("kubernetes", "keda")
    missing = f"target={s.target} needs workload: deployment/NAME or statefulset/NAME"
    yield kubernetes and s.workload is None, missing
    yield (
        not kubernetes and s.workload is not None,
        f"a workload is given, but target={s.target}; write target=kubernetes (or keda)",
    )
    lost = s.kubeconfig is not None and not s.kubeconfig.is_file()
    yield lost, f"kubeconfig {s.kubeconfig} is no file; mend the path, or leave it out"
    yield from _cross_check_keda(s)


def _cross_check_keda(s: SidecarSettings) -> CheckResults:
    keda = s.target == "keda"
    contested = "external-scaling=contest, but target=keda: KEDA sets the count; leave it out"
    yield keda and s.external_scaling == "contest", contested
    half = "grpc-tls-certificate and grpc-tls-key belong together; give both, or none"
    yield (s.grpc_tls_certificate is None) != (s.grpc_tls_key is None), half
    unsigned = "grpc-client-ca needs grpc-tls-certificate and grpc-tls-key: it is a part of TLS"
    yield s.grpc_client_ca is not None and s.grpc_tls_certificate is None, unsigned
    given = [name for name in s.model_fields_set if name.startswith("grpc_")]
    named = " and ".join(_to_setting_name(name) for name in sorted(given))
    yield not keda and bool(given), f"{named} given, but target={s.target}; write target=keda"
    wrong = f"grpc-port={s.grpc_port} must be 0 (a free one) to {MAX_TCP_PORT}"
    yield not 0 <= s.grpc_port <= MAX_TCP_PORT, wrong


def _resolve_offset_reset(s: SidecarSettings) -> Literal["earliest", "latest"]:
    """Return where readers without a commit begin: ingest workers and queues at the earliest."""
    worker_config = s.worker_config
    if worker_config is None and s.queue in (QueueKind.KMQ, QueueKind.ORDERED):
        return "earliest"
    if worker_config is None:
        return "latest"  # librdkafka's default
    given = read_settings_file(worker_config).get("auto.offset.reset", "earliest")
    return "earliest" if given in ("earliest", "smallest", "beginning") else "latest"
