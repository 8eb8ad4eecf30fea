"""Contradictions between settings. Pure: no check reads a file.

Each function yields pairs: whether the settings contradict each other, and the error text, which
names every setting involved.
"""

from collections.abc import Collection, Iterable
from typing import Final, TypeAlias
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.common.units import format_count
from trimtab.sidecar.model.hpa_behavior import MAX_POLICY_PERIOD_S, FallbackBehavior, SelectPolicy
from trimtab.sidecar.model.schedule import explain_invalid_cron
from trimtab.sidecar.settings.fields import ScalingRulesSetting, SchedulePeriodSetting, ToleranceSetting
from trimtab.sidecar.settings.options import WORKER_COMMAND_EXAMPLE, SidecarOptions

CheckResults: TypeAlias = Iterable[tuple[bool, str]]

MAX_TCP_PORT: Final = 65535


def cross_check_options(
    options: SidecarOptions, given: Collection[str], consumption_window: float, backlog_grace: float
) -> CheckResults:
    """Check everything; `given` are the names that were set, the other two are seconds."""
    yield not options.bootstrap.strip(), "bootstrap is empty; give host:port of a broker"
    yield not options.group.strip(), "group is empty; give the group's name"
    yield options.capacity <= 0, "capacity must be above 0; give what one consumer sustains"
    yield not 0 < options.headroom <= 1, f"headroom={options.headroom} must be above 0 and at most 1"
    yield options.interval <= 0, "interval must be above 0"
    yield options.catch_up_time <= 0, "catch-up-time must be above 0"
    yield options.timeout <= 0, "timeout must be above 0"
    # a rate is the difference of two readings
    short = f"window={options.window:g} s is less than twice interval={options.interval:g} s; make it longer"
    yield options.window < 2 * options.interval, short
    yield (
        not 0 <= options.port <= MAX_TCP_PORT,
        f"port={options.port} must be 0 (a free one) to {MAX_TCP_PORT}",
    )
    brief = f"season={options.season or 0:g} s is less than twice interval={options.interval:g} s"
    yield options.season is not None and options.season < 2 * options.interval, f"{brief}; make it longer"
    yield from _check_weights(options)
    yield from _check_move_cost(options)
    yield from _check_queue(options)
    yield from _check_lead(options, given)
    yield from _check_limits(options)
    yield from _check_fallback(options)
    yield from _check_scale_up_evaluation(options, consumption_window, backlog_grace)
    yield from _check_freshness_slo(options, given, consumption_window)
    yield from _check_process_target(options)
    yield from _check_kubernetes_target(options)
    yield from _check_keda_target(options, given)


def _check_weights(options: SidecarOptions) -> CheckResults:
    queried = options.weight_source == "prometheus"
    yield queried and not options.weight_query, "weight-source=prometheus needs weight-query"
    yield queried and not options.prometheus_url, "weight-source=prometheus needs prometheus-url"
    unused = (
        f"weight-query is given, but weight-source={options.weight_source}; write weight-source=prometheus"
    )
    yield not queried and options.weight_query is not None, unused
    costed = "record-cost adds to write rates, but weight-source=prometheus; leave one of the two out"
    yield queried and options.record_cost > 0, costed
    learned = "learn-record-cost is about write rates, but weight-source=prometheus; leave one of the two out"
    yield queried and options.learn_record_cost, learned
    told = "record-cost is given, but learn-record-cost=true learns it; leave one of the two out"
    yield options.learn_record_cost and options.record_cost > 0, told
    shape = "prometheus-url is no URL like https://HOST[:PORT][/PATH]"  # its value may hold a password
    yield options.prometheus_url is not None and not _is_plain_url(options.prometheus_url), shape


def _is_plain_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port
        return False
    unexpected = parts.username or parts.query or parts.fragment
    return parts.scheme in ("http", "https") and has_place and not unexpected and url.isprintable()


def _check_move_cost(options: SidecarOptions) -> CheckResults:
    if options.move_cost is None:
        return
    yield options.move_cost <= 0, "move-cost must be above 0"
    other = f"move-cost tunes steady, but heuristic={options.heuristic}; leave one of the two out"
    yield options.heuristic != "steady", other


def _check_queue(options: SidecarOptions) -> CheckResults:
    one_topic = len(options.topics) == 1 and not options.topics[0].startswith("^")
    unnamed = f"queue={options.queue} needs the name of its one topic (topics)"
    yield options.queue is not None and not one_topic, unnamed
    unread = f"queue-markers is given, but queue={options.queue or 'none'}: only kmq has markers"
    yield options.queue_markers is not None and options.queue is not QueueKind.KMQ, unread
    # the broker of a share group distributes the records itself
    unplaced = options.queue is QueueKind.SHARE and options.learn_capacity
    yield unplaced, "learn-capacity is about a placement, and queue=share has none"


def _check_lead(options: SidecarOptions, given: Collection[str]) -> CheckResults:
    unused = sorted(name for name in given if name.startswith("lead-") or name == "take-lead")
    yield not options.lead and bool(unused), f"{' and '.join(unused)} given, but not lead; write lead too"
    unled = "lead is about a group whose members assign partitions, and queue=share has none"
    yield options.lead and options.queue is QueueKind.SHARE, unled
    brokers = "lead is about a classic group, but protocol=consumer; leave one of the two out"
    yield options.lead and options.protocol == "consumer", brokers
    yield not options.lead_assignors, "lead-assignors is empty; name an assignor of the group's clients"
    yield options.lead_session_timeout <= 0, "lead-session-timeout must be above 0"


def _check_limits(options: SidecarOptions) -> CheckResults:
    yield options.min < 0, f"min={options.min} must be at least 0"
    yield options.max < 1, f"max={options.max} must be at least 1"
    few = f"consumers-per-replica={options.consumers_per_replica} must be at least 1"
    yield options.consumers_per_replica < 1, few
    yield (
        options.min > options.max,
        f"min={options.min} is above max={options.max}; lower one or raise the other",
    )
    yield from _check_scaling_rules("scale-up-policies", options.scale_up_policies)
    yield from _check_scaling_rules("scale-down-policies", options.scale_down_policies)
    yield from _check_tolerances(options.tolerance)
    for number, period in enumerate(options.schedule, 1):
        yield from _check_cron_lines(f"schedule entry {number}", period)
        yield from _check_period_limits(f"schedule entry {number}", period, options.min, options.max)
    # the measured write rate is 0 only after a whole window without records
    idle = f"idle-after={options.idle_after:g} s is less than window={options.window:g} s of the write rates"
    yield options.min == 0 and options.idle_after < options.window, f"{idle}; make it longer"
    # without members the group subscribes to nothing that could be measured
    unnamed = "min=0 needs topics: a group without replicas does not name what it reads"
    reaches_zero = 0 in (options.min, *(period.min for period in options.schedule))
    yield reaches_zero and not options.topics, unnamed


def _check_scaling_rules(name: str, rules: ScalingRulesSetting) -> CheckResults:
    direction = name.removesuffix("-policies")
    for policy in rules.policies:
        yield policy.value < 1, f"{name}={policy.value} would never {direction}; at least 1"
        longest = f"{name}: a period of {policy.period:g} s is above {MAX_POLICY_PERIOD_S:g} s"
        yield policy.period > MAX_POLICY_PERIOD_S, longest
    missing = not rules.policies and rules.select is not SelectPolicy.DISABLED
    yield missing, f"{name} has no policies; give one, or select: disabled"


def _check_tolerances(tolerances: ToleranceSetting) -> CheckResults:
    up, down = tolerances.scale_up, tolerances.scale_down
    yield not 0 <= up < 1, f"tolerance={up:g} must be at least 0 and below 1"
    wrong = down != up and not 0 <= down < 1  # the short form sets both: one error is enough
    yield wrong, f"tolerance (scale-down)={down:g} must be at least 0 and below 1"


def _check_cron_lines(name: str, period: SchedulePeriodSetting) -> CheckResults:
    for field, line in (("start", period.start), ("end", period.end)):
        reason = explain_invalid_cron(line)
        yield reason is not None, f"{name}: {field}={line!r} is no cron line ({reason})"
    yield period.start == period.end, f"{name}: start and end are both {period.start!r}"
    unknown = f"{name}: timezone={period.timezone!r} is not known here; write an IANA name"
    yield not _is_timezone(period.timezone), unknown


def _check_period_limits(
    name: str, period: SchedulePeriodSetting, min_replicas: int, max_replicas: int
) -> CheckResults:
    limits = period.min is not None or period.max is not None
    changes_nothing = not limits and period.pause == "none"
    yield changes_nothing, f"{name} has neither min nor max nor pause; it would change nothing"
    low, low_name = (min_replicas, "min") if period.min is None else (period.min, f"{name}: min")
    high, high_name = (max_replicas, "max") if period.max is None else (period.max, f"{name}: max")
    above = f"{low_name}={low} is above {high_name}={high}; lower one or raise the other"
    yield limits and low > high, above  # without limits of its own the error is not the period's
    yield low < 0, f"{low_name}={low} must be at least 0"
    yield high < 1, f"{high_name}={high} must be at least 1"


def _is_timezone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):  # ValueError: an absolute path, or ..
        return False
    return True


def _check_fallback(options: SidecarOptions) -> CheckResults:
    current = options.fallback is FallbackBehavior.CURRENT
    count = options.fallback_replicas
    yield not current and count is None, f"fallback={options.fallback} needs fallback-replicas"
    unused = f"fallback-replicas={count} is given, but fallback=current; leave one of the two out"
    yield current and count is not None, unused
    outside = f"fallback-replicas={count} is not between min={options.min} and max={options.max}"
    yield count is not None and not options.min <= count <= options.max, outside
    iterations = format_count(options.fallback_after, "iteration")
    early = (
        f"fallback-after={iterations} of interval={options.interval:g} s end before a "
        f"starting sidecar can know a write rate (half of window={options.window:g} s); raise it"
    )
    yield not current and options.fallback_after * options.interval <= options.window / 2, early


def _check_scale_up_evaluation(
    options: SidecarOptions, consumption_window: float, backlog_grace: float
) -> CheckResults:
    evaluated = f"scale-up-evaluation-window={consumption_window:g} s"
    short = f"{evaluated} is less than window={options.window:g} s; make it longer, or 0"
    yield 0 < consumption_window < options.window, short
    # consumption is measured by commits, and a commit ends a batch of up to backlog-grace
    batches = (
        f"{evaluated} is less than twice backlog-grace={backlog_grace:g} s, so it may hold no whole batch"
    )
    yield 0 < consumption_window < 2 * backlog_grace, f"{batches}; make it longer, or 0"
    low, high = options.learned_capacity_min, options.learned_capacity_max
    bounds = (
        f"learned-capacity-min={low:g} must be above 0 and at most 1, "
        f"learned-capacity-max={high:g} at least 1: they are fractions of capacity"
    )
    yield not 0 < low <= 1 <= high, bounds
    unmeasured = "learn-capacity needs a scale-up-evaluation-window above 0"
    yield options.learn_capacity and not consumption_window, unmeasured


def _check_freshness_slo(
    options: SidecarOptions, given: Collection[str], consumption_window: float
) -> CheckResults:
    if options.freshness_slo is None:
        return
    both = " and ".join(sorted({"catch-up-time", "backlog-grace"} & set(given)))
    yield bool(both), f"{both} given, but freshness-slo sets them; leave one of the two out"
    slow = f"freshness-slo={options.freshness_slo:g} s is less than twice interval={options.interval:g} s"
    yield options.freshness_slo < 2 * options.interval, f"{slow}; decisions are too slow to keep it"
    unmeasured = "freshness-slo needs a scale-up-evaluation-window above 0 to estimate freshness"
    yield not consumption_window, unmeasured


def _check_process_target(options: SidecarOptions) -> CheckResults:
    process = options.target == "process"
    has_config = options.worker_config is not None
    has_command = bool(options.worker_command)
    has_worker = has_config or has_command
    yield process and not has_worker, "target=process needs worker-config (or worker-command)"
    twice = "worker-config and worker-command are both given; leave one out"
    yield has_config and has_command, twice
    yield not process and has_worker, f"a worker is given, but target={options.target}; write target=process"
    # workers outlive the sidecar: the next one finds them by their process ids
    stateless = "target=process needs state-dir, the folder of the workers' process ids"
    yield process and options.state_dir is None, stateless
    yield options.stop_workers and not process, "stop-workers needs target=process"
    nameless = has_command and not any("{instance}" in part for part in options.worker_command)
    yield nameless, f"worker-command has no {{instance}}; write {WORKER_COMMAND_EXAMPLE}"


def _check_kubernetes_target(options: SidecarOptions) -> CheckResults:
    kubernetes = options.target in ("kubernetes", "keda")
    missing = f"target={options.target} needs workload: deployment/NAME or statefulset/NAME"
    yield kubernetes and options.workload is None, missing
    unused = f"a workload is given, but target={options.target}; write target=kubernetes (or keda)"
    yield not kubernetes and options.workload is not None, unused


def _check_keda_target(options: SidecarOptions, given: Collection[str]) -> CheckResults:
    half = "grpc-tls-certificate and grpc-tls-key belong together; give both, or none"
    yield (options.grpc_tls_certificate is None) != (options.grpc_tls_key is None), half
    unsigned = "grpc-client-ca needs grpc-tls-certificate and grpc-tls-key: it is a part of TLS"
    yield options.grpc_client_ca is not None and options.grpc_tls_certificate is None, unsigned
    named = " and ".join(sorted(name for name in given if name.startswith("grpc-")))
    yield (
        options.target != "keda" and bool(named),
        f"{named} given, but target={options.target}; write target=keda",
    )
    wrong = f"grpc-port={options.grpc_port} must be 0 (a free one) to {MAX_TCP_PORT}"
    yield not 0 <= options.grpc_port <= MAX_TCP_PORT, wrong
