"""Every setting of the sidecar: name, type, default and description.

`--help`, the table in docs/sidecar.md and the checks are made from this list. It imports no client
library and no numpy, so that `--help` is quick.
"""

from pathlib import Path
from typing import Final, Literal

from trimtab.common.control_topics.topics import DECISION_TOPIC, PLAN_TOPIC, WRITE_RATE_TOPIC
from trimtab.common.settings.settings_model import (
    CO_PARTITIONED_EXAMPLE,
    ByteRate,
    ByteSize,
    Duration,
    SettingsModel,
    TopicGroups,
    TopicList,
    setting,
)
from trimtab.common.settings.shared_defaults import DEFAULT_HEURISTIC, QueueKind
from trimtab.sidecar.model.hpa_behavior import FallbackBehavior
from trimtab.sidecar.settings.fields import (
    FreshnessSlo,
    PauseOption,
    ScalingRulesOption,
    SchedulePeriodSetting,
    ToleranceOption,
    ToleranceSetting,
    WorkloadRef,
    build_pod_rules,
)

WORKER_COMMAND_EXAMPLE: Final = (
    'a list of words, like ["python", "worker.py", "{instance}"]; {instance} becomes the worker\'s name'
)

# as Java's clients, librdkafka, kafka-python, aiokafka, franz-go and sarama call them
LEAD_ASSIGNORS: Final = ("cooperative-sticky", "sticky", "range", "roundrobin")
DEFAULT_LEAD_SESSION_S: Final = 60.0  # another sidecar takes over after 45 s of silence at most


class SidecarOptions(SettingsModel, owner="the sidecar"):
    """The sidecar's settings as they are written, without checks between them."""

    bootstrap: str = setting("Brokers, as host:port; several with commas.")
    group: str = setting("The consumer group.")
    topics: TopicList = setting(
        'Topic names with commas, or one "^pattern".',
        default=(),
        default_text="the topics that the group reads",
        example='names with commas, like "orders,clicks", or one pattern, like "^lake-.*"',
    )
    queue: QueueKind | None = setting(
        "Kind of queue that the topic is: kmq, ordered or share. See [queues](queues.md).", default=None
    )
    queue_markers: str | None = setting(
        "Markers topic of a kmq queue.", default=None, default_text="`TOPIC.GROUP.markers`"
    )
    kafka: dict[str, str | int | float | bool] = setting(
        "librdkafka's settings by their names (TLS, SASL); see [security](security.md).",
        default_factory=dict,
        example="librdkafka's names and values, like {security.protocol: SSL}",
        secret=True,
    )
    timeout: Duration = setting("Timeout of one request to the brokers.", default=5.0)

    capacity: ByteRate = setting(
        'Throughput that one consumer sustains end to end, like "2.3 MB/s"; bytes/s without a unit.'
    )
    headroom: float = setting("Fraction of the capacity to fill.", default=0.9)
    heuristic: str = setting("Placement heuristic; see `trimtab heuristics`.", default=DEFAULT_HEURISTIC)
    co_partitioned: TopicGroups = setting(
        "Groups of topics whose partitions of one number one consumer reads, for joins and state by key; "
        "see [heuristics](heuristics.md#co-partitioned-topics).",
        default=(),
        example=CO_PARTITIONED_EXAMPLE,
    )
    move_cost: Duration | None = setting(
        "Tunes steady: how long to keep one more consumer rather than move one consumer's load; "
        '"15 s" equals steady:balanced. See [placement](placement.md).',
        default=None,
    )
    source: Literal["offsets", "log-dirs"] = setting(
        "Source of write rates: end offsets, or log sizes on the brokers' disks.", default="offsets"
    )
    record_cost: ByteSize = setting(
        'What each record costs a consumer beyond its bytes, like "150 B"; see '
        "[cost of records](measuring.md#cost-of-records).",
        default=0,
    )
    learn_record_cost: bool = setting(
        "Learn what a record costs from the consumers' handler time, and use it while that predicts better "
        "than bytes; see [cost of records](measuring.md#cost-of-records).",
        default=False,
    )
    weight_source: Literal["write-rate", "prometheus"] = setting(
        "What a partition weighs: its write rate, or what `weight-query` returns; see "
        "[weights from Prometheus](measuring.md#weights-from-prometheus).",
        default="write-rate",
    )
    weight_query: str | None = setting(
        "PromQL query with one sample per partition, with the labels `topic` and `partition`, in the unit of "
        "`capacity`.",
        default=None,
    )
    prometheus_url: str | None = setting("Address of Prometheus, like http://prometheus:9090.", default=None)
    prometheus_token_file: Path | None = setting("File of the token that Prometheus requires.", default=None)
    window: Duration = setting("Window over which write rates are measured.", default=30.0)
    season: Duration | None = setting(
        'Length of a season, like "1 d": decisions follow the [load forecast](measuring.md#load-forecast) '
        "from earlier ones while that proves better than the load as it is.",
        default=None,
    )
    interval: Duration = setting("Time between decisions.", default=10.0)
    offset_reset: Literal["earliest", "latest"] | None = setting(
        "Where reading begins in a partition without a commit.",
        default=None,
        default_text="as in the worker's configuration, else `latest`",
    )

    min: int = setting("Fewest replicas; 0 scales to zero while there is nothing to read.", default=1)
    max: int = setting("Most replicas.", default=10)
    consumers_per_replica: int = setting(
        "Consumers that each replica runs, such as threads of a pod; see "
        "[several consumers in a pod](kubernetes.md#several-consumers-in-a-pod).",
        default=1,
    )
    scale_up_policies: ScalingRulesOption = setting(
        "Most replicas to add per iteration, or [policies](#policy).",
        default=build_pod_rules(4),
        example="a number of replicas, like 4, or policies, like [{type: percent, value: 100, period: 60 s}]",
    )
    scale_down_policies: ScalingRulesOption = setting(
        "Most replicas to remove per iteration, or [policies](#policy).",
        default=build_pod_rules(1),
        example="a number of replicas, like 1, or policies, like [{type: percent, value: 10, period: 5 min}]",
    )
    scale_up_stabilization_window: Duration = setting(
        "Scale-up uses the lowest recommendation of this window.", default=0.0
    )
    scale_down_stabilization_window: Duration = setting(
        "Scale-down uses the highest recommendation of this window, "
        "unless a load forecast shows that the load will not return.",
        default=120.0,
    )
    cooldown: Duration = setting("Shortest time between two scaling decisions.", default=30.0)
    tolerance: ToleranceOption = setting(
        "Fraction by which the load must differ from the replica count's before it changes; also "
        "`{scale-up: …, scale-down: …}`.",
        default=ToleranceSetting(),
        example="a fraction, like 0.1, or one for each direction, like {scale-up: 0.05, scale-down: 0.2}",
    )
    schedule: tuple[SchedulePeriodSetting, ...] = setting(
        "Periods with other [limits](#policy), by cron lines.",
        default=(),
        example='a list of periods, like [{start: "0 8 * * 1-5", end: "0 18 * * 1-5", '
        "timezone: Europe/Rome, min: 4}]",
    )
    pause: PauseOption = setting("Directions that do not scale.", default="none")
    fallback: FallbackBehavior = setting(
        "Replica count while no write rate is known: current, static or current-if-higher.",
        default=FallbackBehavior.CURRENT,
    )
    fallback_replicas: int | None = setting("Replica count of the fallback.", default=None)
    fallback_after: int = setting("Iterations without a write rate before the fallback.", default=3)
    idle_after: Duration = setting(
        "Time without new or waiting records before scaling to zero (`min: 0`).", default=300.0
    )
    scale_up_evaluation_window: Duration | None = setting(
        "Window over which consumption is measured to evaluate a scale-up; 0 turns it off.",
        default=None,
        default_text="4 times the longer of `window` and `backlog-grace`",
    )
    scale_up_evaluation_retry: Duration = setting(
        "Time after which scale-up is tried again if it had no effect.", default=600.0
    )
    learn_capacity: bool = setting("Learn each consumer's capacity under load.", default=False)
    learned_capacity_min: float = setting(
        "Least capacity to learn, as a fraction of `capacity`.", default=0.5
    )
    learned_capacity_max: float = setting("Most capacity to learn, as a multiple of `capacity`.", default=2.0)
    freshness_slo: FreshnessSlo | None = setting(
        'Freshness objective, like "p99-freshness 30 s"; replaces `catch-up-time` and `backlog-grace`.',
        default=None,
    )
    catch_up_time: Duration = setting("Time in which overdue backlog is to be consumed.", default=120.0)
    backlog_grace: Duration = setting("Backlog younger than this is not overdue.", default=15.0)
    drain_retry: Duration = setting("Time after which a drain is requested again.", default=60.0)
    startup_timeout: Duration = setting("Longest start of a replica.", default=120.0)

    target: Literal["none", "process", "kubernetes", "keda"] = setting(
        "Replica target: none publishes plans only, process runs local workers, kubernetes scales "
        "a workload, keda lets KEDA scale it. See [Kubernetes](kubernetes.md).",
        default="none",
    )
    workload: WorkloadRef | None = setting("Workload: deployment/NAME or statefulset/NAME.", default=None)
    namespace: str | None = setting(
        "Namespace of the workload.", default=None, default_text="the pod's, else the kubeconfig's"
    )
    kubeconfig: Path | None = setting(
        "Kubeconfig file.", default=None, default_text="the pod's service account, else the usual file"
    )
    leader_election: bool = setting("Elect one of several sidecars by a Kubernetes lease.", default=True)
    grpc_host: str = setting("Address of the service that KEDA asks.", default="127.0.0.1")
    grpc_port: int = setting("Port of that service; 0 takes a free one and logs it.", default=6000)
    grpc_tls_certificate: Path | None = setting(
        "PEM certificate of that service. See [endpoints](security.md#endpoints).", default=None
    )
    grpc_tls_key: Path | None = setting("PEM key of that service.", default=None)
    grpc_client_ca: Path | None = setting(
        "PEM certificate authority that KEDA's client certificate must be signed by.", default=None
    )
    worker_config: Path | None = setting("Settings file of `trimtab ingest` (target process).", default=None)
    worker_command: tuple[str, ...] = setting(
        "Command of a worker, instead of `worker-config`; `{instance}` becomes the worker's name.",
        default=(),
        example=WORKER_COMMAND_EXAMPLE,
    )
    worker_stop_timeout: Duration = setting("Time until a stopping worker is killed.", default=60.0)
    state_dir: Path | None = setting(
        "Folder for the process ids and logs of the workers, for target process.", default=None
    )
    stop_workers: bool = setting("Stop the workers on SIGTERM, too.", default=False)
    dry_run: bool = setting("Log the decisions; publish and change nothing.", default=False)
    take_over: bool = setting(
        "Take over from another sidecar of the group at once instead of [standing by](#one-leader).",
        default=False,
    )

    protocol: Literal["auto", "consumer", "classic"] = setting(
        "Protocol of the group (`group.protocol`): consumer carries plans to the [broker plugin]"
        "(any-client.md#the-broker-plugin-and-kip-848), auto does where the group uses it, classic never.",
        default="auto",
    )
    lead: bool = setting(
        "Lead the group's rebalances, so that [clients that know no plans](any-client.md) follow them.",
        default=False,
    )
    take_lead: bool = setting(
        "Ask the group's leader to leave once, so that this sidecar leads; that member rejoins.",
        default=False,
    )
    lead_session_timeout: Duration = setting(
        "How long the lead is kept for a sidecar that restarts, or for the one that takes over.",
        default=DEFAULT_LEAD_SESSION_S,
    )
    lead_assignors: TopicList = setting(
        "Names of assignors, the preferred one first; the group uses one that all its members name.",
        default=LEAD_ASSIGNORS,
        example='names with commas, like "cooperative-sticky,range"',
    )

    plan_topic: str = setting("Control topic of the plans.", default=PLAN_TOPIC)
    write_rate_topic: str = setting("Control topic of the write rates.", default=WRITE_RATE_TOPIC)
    decision_topic: str = setting("Control topic of the decisions.", default=DECISION_TOPIC)
    replication_factor: int = setting(
        "Replication factor of the control topics; -1 takes the brokers' default.", default=-1
    )
    host: str = setting("Address of the web page.", default="127.0.0.1")
    port: int = setting(
        "Port of the web page; 0 takes a free one, which is logged and written to `STATE-DIR/web`.", default=0
    )
    tls_certificate: Path | None = setting(
        "PEM certificate of the web page. See [endpoints](security.md#endpoints).", default=None
    )
    tls_key: Path | None = setting("PEM key of the web page.", default=None)
    token_file: Path | None = setting("File of the token that the web page requires.", default=None)
    telemetry: bool = setting("Export metrics and logs by [OpenTelemetry](telemetry.md).", default=False)
