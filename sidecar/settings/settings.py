"""The sidecar's settings with the values derived from them, and how they are loaded.

A YAML file and flags have the same names; flags win. Secrets may be references, see
`common.kafka_security.secrets`.
"""

import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from trimtab.assignor.heuristics import registry
from trimtab.assignor.heuristics.heuristic_spec import parse_heuristic_spec
from trimtab.assignor.heuristics.steady.params import resolve_params
from trimtab.assignor.model import PlacementPolicy
from trimtab.common.http_server import AccessPolicy, load_access_policy
from trimtab.common.kafka_security import client_config
from trimtab.common.kafka_security.secrets import mask_secrets_in_errors, resolve_secrets
from trimtab.common.kmq_offset_metadata import markers_topic
from trimtab.common.lag import RESET_TO_END_VALUES
from trimtab.common.settings.config_file import read_config_file
from trimtab.common.settings.settings_model import validate_settings
from trimtab.common.settings.shared_defaults import DEFAULT_BATCH_MAX_AGE_S, QueueKind
from trimtab.common.units import parse_seconds
from trimtab.sidecar.errors import SidecarSettingError
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy, CapacityBounds, FallbackPolicy
from trimtab.sidecar.model.catch_up_policy import SLO_MARGIN, CatchUpPolicy
from trimtab.sidecar.model.record_weights import RecordWeights
from trimtab.sidecar.settings.cross_checks import cross_check_options
from trimtab.sidecar.settings.fields import expand_paused_directions
from trimtab.sidecar.settings.options import SidecarOptions

INGEST_COMMAND: Final = (sys.executable, "-m", "trimtab.cli", "ingest", "--instance", "{instance}")

_INGEST_BATCH_AGE: Final = "batch.max.age"
_CONSUMER_SETTINGS: Final = frozenset({"bootstrap.servers", "group.id"})  # in a file of `trimtab ingest`


class SidecarSettings(SidecarOptions):
    """Checked settings; durations in seconds, `capacity` in bytes/s."""

    def find_problems(self, given: Collection[str]) -> Iterable[str]:
        """Yield the contradictions between settings; reads no file."""
        checks = cross_check_options(self, given, self.consumption_window, self.catch_up.backlog_grace)
        return (text for contradicts, text in checks if contradicts)

    @property
    def effective_heuristic(self) -> str:
        """Return `heuristic`, tuned by `move_cost` if that is set."""
        if self.move_cost is None:
            return self.heuristic
        settings = parse_heuristic_spec(self.heuristic).settings.items()
        return f"steady:{self.move_cost_weight:g}" + "".join(f":{n}={v:g}" for n, v in settings)

    @property
    def move_cost_weight(self) -> float:
        """Return λ: the consumers that moving one consumer's load is worth."""
        if self.move_cost is not None:
            # a decision, and a consumer it adds, lasts at least until the next change
            return self.move_cost / max(self.cooldown, self.interval)
        spec = parse_heuristic_spec(self.heuristic)
        return resolve_params(spec.preset if spec.base == "steady" else "").move_cost

    @property
    def load_source(self) -> str:
        """Return where the published load comes from."""
        return self.source if self.weight_source == "write-rate" else self.weight_source

    @property
    def catch_up(self) -> CatchUpPolicy:
        """Return how fast backlog is consumed, by `freshness_slo` if that is set."""
        if self.freshness_slo is None:
            return CatchUpPolicy(self.catch_up_time, self.backlog_grace)
        return CatchUpPolicy(self.freshness_slo, self.freshness_slo * (1 - SLO_MARGIN))

    @property
    def consumption_window(self) -> float:
        """Return the seconds over which consumption is measured; 0 if it is not."""
        if self.scale_up_evaluation_window is not None:
            return self.scale_up_evaluation_window
        # commits come by the batch, and the window must hold several batches
        return 4 * max(self.window, self.catch_up.backlog_grace)

    @property
    def autoscaling_policy(self) -> AutoscalingPolicy:
        """Return the policy as decisions use it."""
        placement = PlacementPolicy(
            self.effective_heuristic,
            self.capacity,
            self.headroom,
            consolidate=True,
            co_partitioned=self.co_partitioned,
        )
        learned = CapacityBounds(self.learned_capacity_min, self.learned_capacity_max)
        tolerance = self.tolerance
        advisory = self.dry_run or self.target == "none"
        return AutoscalingPolicy(
            placement=placement,
            min_replicas=self.min,
            max_replicas=self.max,
            scale_up=self.scale_up_policies.build_rules(
                self.scale_up_stabilization_window, tolerance.scale_up
            ),
            scale_down=self.scale_down_policies.build_rules(
                self.scale_down_stabilization_window, tolerance.scale_down
            ),
            cooldown=self.cooldown,
            paused_directions=expand_paused_directions(self.pause),
            schedule=tuple(entry.cron_period for entry in self.schedule),
            fallback=FallbackPolicy(self.fallback, self.fallback_replicas or 0, self.fallback_after),
            idle_after=self.idle_after,
            scale_up_evaluation_window=self.consumption_window,
            scale_up_evaluation_retry=self.scale_up_evaluation_retry,
            learned_capacity_bounds=learned if self.learn_capacity else None,
            record_weights=RecordWeights(record=self.record_cost),
            drain_retry=self.drain_retry,
            startup_timeout=self.startup_timeout,
            catch_up=self.catch_up,
            freshness_slo=self.freshness_slo,
            advisory=advisory,
            # without a target each member counts as a replica
            consumers_per_replica=1 if advisory else self.consumers_per_replica,
        )

    @property
    def client_config(self) -> dict[str, Any]:
        """Return librdkafka's configuration; it holds secrets."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "trimtab-sidecar",
            "log_level": 2,  # the control loop logs unreachable brokers itself, once
            "socket.timeout.ms": int(self.timeout * 1000),
            **client_config.to_librdkafka_config(self.kafka),
        }

    @property
    def markers_topic(self) -> str:
        """Return the markers topic of a `kmq` queue."""
        return self.queue_markers or markers_topic(self.topics[0], self.group)

    @property
    def access_policy(self) -> AccessPolicy:
        """Return the web page's TLS and token. Reads their files. Raises SettingError."""
        return load_access_policy(self.tls_certificate, self.tls_key, self.token_file)

    @property
    def worker_argv(self) -> tuple[str, ...]:
        """Return the command of a worker, with "{instance}" for its name."""
        if self.worker_command:
            return self.worker_command
        return (*INGEST_COMMAND, "--config", str(cast("Path", self.worker_config).resolve()))


def load_settings(file: Path | None, flags: Mapping[str, Any]) -> SidecarSettings:
    """Return the settings of a file and flags; flags win, those that are None do not count.

    Names may have "_" for "-". Raises SettingError.
    """
    given = merge_flags(read_settings_file(file), flags)
    with mask_secrets_in_errors(given, os.environ):  # validation errors repeat the value
        return load_resolved_settings(resolve_secrets(given, os.environ))


def merge_flags(given: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's settings with those flags that are not None in their place."""
    merged = dict(given)
    for flag, value in flags.items():
        name = _to_setting_name(flag)
        if value is not None:
            old = merged.get(name)
            merged[name] = {**old, **value} if name == "kafka" and isinstance(old, dict) else value
    return merged


def read_settings_file(file: Path | None) -> dict[str, Any]:
    """Return a file's settings unchecked, {} without a file. Raises SettingError."""
    given = {} if file is None else read_config_file(file)
    return {_to_setting_name(name): value for name, value in given.items()}


def load_resolved_settings(given: Mapping[str, Any]) -> SidecarSettings:
    """Return the settings of values by their names, secrets resolved. Raises SettingError."""
    # before the validation, which would call them unknown and suggest other names
    misplaced = sorted(_CONSUMER_SETTINGS & given.keys())
    if misplaced:
        raise SidecarSettingError(
            f"{' and '.join(misplaced)}: these are settings of a consumer, as in the file of trimtab "
            "ingest; the sidecar has its own file (bootstrap, group, capacity), and takes that of "
            "ingest as --worker-config"
        )
    settings = validate_settings(SidecarSettings, given)
    client_config.check_settings(settings.kafka)
    registry.get_installed_heuristic(settings.effective_heuristic)
    _check_files(settings)
    return replace(settings, offset_reset=settings.offset_reset or _resolve_offset_reset(settings))


def _check_files(settings: SidecarSettings) -> None:
    kubeconfig = settings.kubeconfig
    worker_config = settings.worker_config
    if kubeconfig is not None and not kubeconfig.is_file():
        raise SidecarSettingError(f"kubeconfig {kubeconfig} is no file; correct the path, or leave it out")
    if worker_config is not None and not worker_config.is_file():
        raise SidecarSettingError(f"worker-config {worker_config} is no file; correct the path")
    token_file = settings.prometheus_token_file
    if token_file is not None and not token_file.is_file():
        raise SidecarSettingError(f"prometheus-token-file {token_file} is no file; correct the path")
    if worker_config is None or settings.freshness_slo is None:
        return
    written = read_settings_file(worker_config).get(_INGEST_BATCH_AGE, DEFAULT_BATCH_MAX_AGE_S)
    batch_age = parse_seconds(written, _INGEST_BATCH_AGE)
    if batch_age >= settings.catch_up.backlog_grace:
        raise SidecarSettingError(
            f"worker-config: {_INGEST_BATCH_AGE}={batch_age:g} s alone misses "
            f"freshness-slo={settings.freshness_slo:g} s; shorten it"
        )


def _resolve_offset_reset(settings: SidecarSettings) -> Literal["earliest", "latest"]:
    """Return where consumers without a commit begin."""
    if settings.worker_config is None:
        is_queue = settings.queue in (QueueKind.KMQ, QueueKind.ORDERED)
        return "earliest" if is_queue else "latest"  # librdkafka's default
    written = read_settings_file(settings.worker_config).get("auto.offset.reset", "earliest")
    return "latest" if written in RESET_TO_END_VALUES else "earliest"


def _to_setting_name(name: str) -> str:
    return name.replace("_", "-")
