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
from trimtab.assignor.heuristics.heuristic_spec import taken_apart
from trimtab.assignor.heuristics.steady.params import knobs_of
from trimtab.assignor.model import Policy
from trimtab.common.control_topics.values import PLAN_TOPIC, WRITE_SPEED_TOPIC
from trimtab.common.http_server import Guard, guard
from trimtab.common.kafka_security import connection
from trimtab.common.kafka_security.secrets import as_written, resolved
from trimtab.common.kmq_offset_metadata import markers_of
from trimtab.common.units import parse_seconds
from trimtab.sidecar.decision.scaling_policy import Bounds, Fallback, ScalePolicy, Use
from trimtab.sidecar.errors import BadSetting
from trimtab.sidecar.measurement.freshness import SPARE
from trimtab.sidecar.measurement.queue_backlog import Kind
from trimtab.sidecar.measurement.write_rate import Drain
from trimtab.sidecar.reporting.decision_record import VERDICT_TOPIC
from trimtab.sidecar.settings.cross_checks import Told, of_bands, of_queue, of_schedule, of_steps
from trimtab.sidecar.settings.error_messages import EXAMPLES, misread
from trimtab.sidecar.settings.fields import (
    Bands,
    DeadBands,
    Goal,
    Names,
    Paused,
    Rate,
    SchedulePeriod,
    Seconds,
    Steps,
    steps,
    ways,
)

Workload = Annotated[
    str, Field(pattern=r"^(deployment|statefulset)/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
]

LAST_PORT: Final = 65535
INGEST: Final = (sys.executable, "-m", "trimtab.cli", "ingest", "--instance", "{instance}")


class Settings(BaseModel):
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
    topics: Names = ()  # none: those that the group reads
    queue: Kind | None = None  # what the topic is to the workers (docs/queues.md); none: a log
    queue_markers: str | None = None  # of kmq; none: TOPIC.GROUP.markers
    kafka: dict[str, str | int | float | bool] = Field(default_factory=dict, repr=False)
    timeout: Seconds = 5.0  # of one question to the brokers

    capacity: Rate  # of one consumer, end to end
    headroom: float = 0.9  # share of it that may be filled
    heuristic: str = registry.DEFAULT
    move_cost: Seconds | None = None  # of one consumer, worth not moving one consumer's load
    source: Literal["offsets", "log-dirs"] = "offsets"
    window: Seconds = 30.0
    interval: Seconds = 10.0
    offset_reset: Literal["earliest", "latest"] | None = None  # none: as the worker config says

    min: int = 1
    max: int = 10
    step_out: Steps = steps(4)  # or policies as the HPA has them
    step_in: Steps = steps(1)
    stabilise_out: Seconds = 0.0
    stabilise_in: Seconds = 120.0
    cool_down: Seconds = 30.0
    dead_band: Bands = DeadBands()
    schedule: tuple[SchedulePeriod, ...] = ()
    pause: Paused = "none"
    fallback: Use = Use.CURRENT
    fallback_replicas: int | None = None
    fallback_after: int = 3  # turns
    idle_after: Seconds = 300.0  # the last one goes, with min=0
    effect_window: Seconds | None = None  # of consumption; 0: not looked at
    effect_retry: Seconds = 600.0
    learn_capacity: bool = False
    learn_least: float = 0.5  # shares of the capacity
    learn_most: float = 2.0
    goal: Goal | None = None  # "p99-freshness 30 s", instead of the two that follow
    drain_target: Seconds = 120.0
    backlog_allowance: Seconds = 15.0
    ask_again: Seconds = 60.0
    start_grace: Seconds = 120.0

    certify: bool = False
    certify_limit: Seconds = 10.0  # at most, of a thread beside the decisions

    target: Literal["none", "process", "kubernetes", "keda"] = "none"
    workload: Workload | None = None  # deployment/NAME or statefulset/NAME
    namespace: str | None = None  # none: the pod's own, or the kubeconfig's
    kubeconfig: Path | None = None  # none: the pod's service account, or the usual file
    foreign_scaling: Literal["respect", "contest"] = "respect"
    elect: bool = True  # one of several sidecars leads, by a lease
    grpc_host: str = "127.0.0.1"  # where KEDA asks
    grpc_port: int = 6000  # 0: a free one
    grpc_tls_certificate: Path | None = None  # PEM files, of KEDA's service alone
    grpc_tls_key: Path | None = None
    grpc_client_ca: Path | None = None  # who vouches for KEDA's certificate; none: nobody is asked
    worker_config: Path | None = None
    worker_command: tuple[str, ...] = ()
    stop_patience: Seconds = 60.0
    state: Path | None = None
    stop_workers: bool = False
    dry_run: bool = False
    take_over: bool = False  # from another sidecar that steers the group, at once

    plan_topic: str = PLAN_TOPIC
    speed_topic: str = WRITE_SPEED_TOPIC
    verdict_topic: str = VERDICT_TOPIC
    replication_factor: int = -1  # the brokers' default
    host: str = "127.0.0.1"
    port: int = 0  # a free one
    tls_certificate: Path | None = None  # PEM files, of the web page
    tls_key: Path | None = None
    token_file: Path | None = None  # of the web page

    @property
    def chosen(self) -> str:
        """Return the heuristic that decides: `heuristic`, tuned where `move_cost` is given.

        A decision stands for as long as changes are apart, so so many consumers may be kept.
        """
        if self.move_cost is None:
            return self.heuristic
        settings = taken_apart(self.heuristic).settings.items()
        return f"steady:{self.moves_cost:g}" + "".join(f":{n}={v:g}" for n, v in settings)

    @property
    def moves_cost(self) -> float:
        """Return λ: how many consumers a move of one consumer's worth of load counts."""
        if self.move_cost is not None:
            return self.move_cost / max(self.cool_down, self.interval)
        named = taken_apart(self.heuristic)
        return knobs_of(named.preset if named.base == "steady" else "").move_cost

    @property
    def drain(self) -> Drain:
        """Return how a backlog counts: what is older than a goal allows is late."""
        if self.goal is None:
            return Drain(self.drain_target, self.backlog_allowance)
        return Drain(self.goal, self.goal * (1 - SPARE))

    @property
    def effect(self) -> float:
        """Return the seconds over which consumption is measured; 0 where it is not.

        Commits come by the batch, and several batches are to be in it.
        """
        usual = 4 * max(self.window, self.drain.allowance)
        return usual if self.effect_window is None else self.effect_window

    @property
    def policy(self) -> ScalePolicy:
        """Return what the decision goes by."""
        return ScalePolicy(
            placement=Policy(self.chosen, self.capacity, self.headroom, consolidate=True),
            least=self.min,
            most=self.max,
            out=self.step_out.rules(self.stabilise_out, self.dead_band.out),
            back=self.step_in.rules(self.stabilise_in, self.dead_band.in_),
            cool_down=self.cool_down,
            pause=ways(self.pause),
            schedule=tuple(entry.period for entry in self.schedule),
            fallback=Fallback(self.fallback, self.fallback_replicas or 0, self.fallback_after),
            idle_after=self.idle_after,
            effect_window=self.effect,
            effect_retry=self.effect_retry,
            learn=Bounds(self.learn_least, self.learn_most) if self.learn_capacity else None,
            ask_again=self.ask_again,
            start_grace=self.start_grace,
            drain=self.drain,
            goal=self.goal,
            advisory=self.dry_run or self.target == "none",
        )

    @property
    def client(self) -> dict[str, Any]:
        """Return librdkafka's configuration; holds secrets."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "trimtab-sidecar",
            "log_level": 2,  # the loop itself says what does not answer, once
            "socket.timeout.ms": int(self.timeout * 1000),
            **connection.for_librdkafka(self.kafka),
        }

    @property
    def markers(self) -> str:
        """Return the markers topic of a `kmq` queue."""
        return self.queue_markers or markers_of(self.topics[0], self.group)

    @property
    def guard(self) -> Guard:
        """Return what the web page asks for. Raises SettingError."""
        return guard(self.tls_certificate, self.tls_key, self.token_file)

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command that starts a worker, with "{instance}" for its name."""
        if self.worker_command:
            return self.worker_command
        return (*INGEST, "--config", str(cast("Path", self.worker_config).resolve()))


def names() -> tuple[str, ...]:
    """Return the names of all settings, as they are written."""
    return tuple(name.replace("_", "-") for name in Settings.model_fields)


def load(file: Path | None, flags: Mapping[str, Any]) -> Settings:
    """Read settings from a file and flags; flags that are None do not count, the others win.

    Raises BadSetting.
    """
    given = read(file)
    for name, value in flags.items():
        if value is not None:
            old = given.get(_written(name))
            whole = {**old, **value} if isinstance(old, dict) and name == "kafka" else value
            given[_written(name)] = whole
    with as_written(given, os.environ):
        return _usable(_checked(resolved(given, os.environ)))


def _usable(settings: Settings) -> Settings:
    connection.check(settings.kafka)
    problems = [text for broken, text in _contradictions(settings) if broken]
    if problems:
        raise BadSetting("; ".join(problems))
    registry.usable(settings.chosen)
    if settings.offset_reset is None:
        return settings.model_copy(update={"offset_reset": _reset(settings)})
    return settings


def _written(name: str) -> str:
    return name.replace("_", "-")


def read(file: Path | None) -> dict[str, Any]:
    """Return a file's settings unchecked; none of no file. Raises BadSetting."""
    if file is None:
        return {}
    try:
        body = yaml.safe_load(file.read_text())
    except OSError as error:
        raise BadSetting(f"config {file}: {error.strerror}; give a readable file") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise BadSetting(f"config {file}{where}: not YAML; write 'name: value' lines") from None
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise BadSetting(f"config {file}: not a mapping; write one 'name: value' a line")
    return {_written(str(key)): value for key, value in body.items()}


def _checked(given: Mapping[str, Any]) -> Settings:
    unknown = [name for name in given if name not in names()]
    if {"bootstrap.servers", "group.id"} & set(unknown):
        raise BadSetting(
            f"{' and '.join(unknown[:2])}: these are settings of a consumer, as trimtab ingest has "
            "them; the sidecar has its own file (bootstrap, group, capacity), and takes that of "
            "ingest as --worker-config"
        )
    if unknown:
        raise BadSetting("; ".join(_unknown(name) for name in unknown))
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        raise BadSetting("; ".join(misread(error))) from None


def _unknown(name: str) -> str:
    near = get_close_matches(name, names(), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(names())}"
    return f"{name!r} is not a setting of the sidecar; {hint}"


def _contradictions(s: Settings) -> Told:
    """Yield whether something cannot be, and what to say about it."""
    yield not s.bootstrap.strip(), "bootstrap is empty; give host:port of a broker"
    yield not s.group.strip(), "group is empty; give the group's name"
    yield s.capacity <= 0, "capacity must be above 0; give what one consumer sustains"
    yield not 0 < s.headroom <= 1, f"headroom={s.headroom} must be above 0 and at most 1"
    yield s.interval <= 0, "interval must be above 0"
    yield s.drain_target <= 0, "drain-target must be above 0"
    yield s.timeout <= 0, "timeout must be above 0"
    yield s.certify_limit <= 0, "certify-limit must be above 0"
    yield s.move_cost is not None and s.move_cost <= 0, "move-cost must be above 0"
    yield (
        s.move_cost is not None and s.heuristic != "steady",
        f"move-cost tunes steady, but heuristic={s.heuristic}; leave one of the two out",
    )
    short = f"window={s.window:g} s is less than twice interval={s.interval:g} s; make it longer"
    yield s.window < 2 * s.interval, short
    yield not 0 <= s.port <= LAST_PORT, f"port={s.port} must be 0 (a free one) to {LAST_PORT}"
    yield from of_queue(s.queue, s.topics, s.queue_markers)
    shared = s.queue is Kind.SHARE and (s.certify or s.learn_capacity)
    yield shared, "certify and learn-capacity are about a placement, and queue=share has none"
    yield from _policy_contradictions(s)
    yield from _target_contradictions(s)
    yield from _kubernetes_contradictions(s)


def _policy_contradictions(s: Settings) -> Told:
    yield s.min < 0, f"min={s.min} must be at least 0"
    yield s.max < 1, f"max={s.max} must be at least 1"
    yield s.min > s.max, f"min={s.min} is above max={s.max}; lower one or raise the other"
    yield from of_steps("step-out", s.step_out)
    yield from of_steps("step-in", s.step_in)
    yield from of_bands(s.dead_band)
    yield from of_schedule(s.schedule, s.min, s.max)
    idle = f"idle-after={s.idle_after:g} s is less than window={s.window:g} s of the speeds"
    yield s.min == 0 and s.idle_after < s.window, idle
    unnamed = "min=0 needs topics: nobody tells what is to be read while no replica runs"
    yield s.min == 0 and not s.topics, unnamed
    yield from _fallback_contradictions(s)
    yield from _effect_contradictions(s)
    yield from _goal_contradictions(s)


def _fallback_contradictions(s: Settings) -> Told:
    current, count = s.fallback is Use.CURRENT, s.fallback_replicas
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


def _goal_contradictions(s: Settings) -> Told:
    if s.goal is None:
        return
    both = s.model_fields_set & {"drain_target", "backlog_allowance"}
    named = " and ".join(_written(name) for name in sorted(both))
    yield bool(both), f"{named} given, but goal sets them itself; leave one of the two out"
    short = f"goal={s.goal:g} s is less than twice interval={s.interval:g} s"
    yield s.goal < 2 * s.interval, f"{short}; what is faster than decisions cannot be kept by them"
    yield not s.effect, "goal needs an effect-window above 0, over which freshness is estimated"
    if s.worker_config is not None and s.worker_config.is_file():
        wait = parse_seconds(read(s.worker_config).get("batch.wait", "10 s"), "batch.wait")
        long = f"worker-config: batch.wait={wait:g} s alone misses goal={s.goal:g} s; shorten it"
        yield wait >= s.drain.allowance, long


def _effect_contradictions(s: Settings) -> Told:
    short = f"effect-window={s.effect:g} s is less than window={s.window:g} s; make it longer, or 0"
    yield 0 < s.effect < s.window, short
    batches = (
        f"effect-window={s.effect:g} s is less than twice backlog-allowance="
        f"{s.drain.allowance:g} s, so it may hold no whole batch; make it longer, or 0"
    )
    yield 0 < s.effect < 2 * s.drain.allowance, batches
    low, high = s.learn_least, s.learn_most
    around = f"learn-least={low:g} and learn-most={high:g} must be around 1: shares of capacity"
    yield not 0 < low <= 1 <= high, around
    yield s.learn_capacity and not s.effect, "learn-capacity needs an effect-window above 0"


def _target_contradictions(s: Settings) -> Told:
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
        f"worker-command has no {{instance}}; write {EXAMPLES['worker-command']}",
    )


def _kubernetes_contradictions(s: Settings) -> Told:
    kubernetes = s.target in ("kubernetes", "keda")
    missing = f"target={s.target} needs workload: deployment/NAME or statefulset/NAME"
    yield kubernetes and s.workload is None, missing
    yield (
        not kubernetes and s.workload is not None,
        f"a workload is given, but target={s.target}; write target=kubernetes (or keda)",
    )
    lost = s.kubeconfig is not None and not s.kubeconfig.is_file()
    yield lost, f"kubeconfig {s.kubeconfig} is no file; mend the path, or leave it out"
    yield from _keda_contradictions(s)


def _keda_contradictions(s: Settings) -> Told:
    keda = s.target == "keda"
    contested = "foreign-scaling=contest, but target=keda: KEDA sets the count; leave it out"
    yield keda and s.foreign_scaling == "contest", contested
    half = "grpc-tls-certificate and grpc-tls-key belong together; give both, or none"
    yield (s.grpc_tls_certificate is None) != (s.grpc_tls_key is None), half
    unsigned = "grpc-client-ca needs grpc-tls-certificate and grpc-tls-key: it is a part of TLS"
    yield s.grpc_client_ca is not None and s.grpc_tls_certificate is None, unsigned
    given = [name for name in s.model_fields_set if name.startswith("grpc_")]
    named = " and ".join(_written(name) for name in sorted(given))
    yield not keda and bool(given), f"{named} given, but target={s.target}; write target=keda"
    wrong = f"grpc-port={s.grpc_port} must be 0 (a free one) to {LAST_PORT}"
    yield not 0 <= s.grpc_port <= LAST_PORT, wrong


def _reset(s: Settings) -> Literal["earliest", "latest"]:
    """Return where readers without a commit begin: ingest workers and queues at the earliest."""
    worker_config = s.worker_config
    if worker_config is None and s.queue in (Kind.KMQ, Kind.ORDERED):
        return "earliest"
    if worker_config is None:
        return "latest"  # librdkafka's default
    given = read(worker_config).get("auto.offset.reset", "earliest")
    return "earliest" if given in ("earliest", "smallest", "beginning") else "latest"
