"""`trimtab init`: looks at a live group and writes settings, the expected saving, and the way back."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.assignor.analysis.streams.stream import parse_stream
from trimtab.assignor.model import TopicPartition
from trimtab.cli.group_settings import load_group_settings
from trimtab.cli.init.group_findings import (
    ChosenCapacity,
    GroupFindings,
    ReplayResult,
    choose_capacity,
    describe_findings,
    describe_saving,
    explain_no_comparison,
    is_resource_wanted,
    may_scale,
    render_ingest_settings,
    render_scaled_object,
    render_scaler_resource,
    render_sidecar_settings,
    render_way_back,
    strip_server_fields,
)
from trimtab.cli.init.options import InitOptions
from trimtab.cli.init.workload_search import find_workload
from trimtab.cli.record.run import (
    READINGS_PER_TICK,
    TickSource,
    record_ticks,
    select_tick_source,
    wait_for_consumers,
)
from trimtab.cli.record.stream_file import StreamFile
from trimtab.cli.setting_pairs import parse_pairs
from trimtab.cli.signals import install_signal_waiter
from trimtab.cli.simulate.findings import build_findings
from trimtab.cli.simulate.run import LIVE_HEADROOM, open_progress
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.cli.terminal import print_line
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import SettingError
from trimtab.common.units import parse_seconds
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.simulation.live_settings import LiveSettings

STREAM_FILE: Final = "stream.json"
WRITTEN_FILES: Final = ("sidecar.yaml", "ingest.yaml", "way-back.md", STREAM_FILE)
RESOURCE_FILE: Final = "consumergroupscaler.yaml"
RESOURCE_FILES: Final = ("scaledobject.yaml", RESOURCE_FILE)
KUBERNETES_FILES: Final = (*RESOURCE_FILES, "scaledobject.before.yaml")
CONTENDERS: Final = ("steady", "keda")


def init(options: InitOptions) -> None:
    """Look, replay and write. Raises SettingError, PeerError."""
    window = parse_seconds(options.window, "--window")
    duration = parse_seconds(options.duration, "--duration")
    if window <= 0 or duration < 2 * window:
        raise SettingError("--duration must be two --window or longer, so that there is something to replay")
    _check_files(options.out, (*WRITTEN_FILES, *KUBERNETES_FILES), force=options.force)
    settings, is_known = load_group_settings(
        options, {"window": window, "interval": window / READINGS_PER_TICK}
    )
    findings, tick = _look(options, settings, duration, capacity_known=is_known)
    chosen = choose_capacity(findings)
    if chosen is None:
        raise SettingError(
            f"nothing was written to {', '.join(findings.topics)} in {duration:g} s, so nothing tells the "
            'capacity of a consumer; give it: --capacity "2.3 MB/s"'
        )
    found, why_not = find_workload(findings.observed.members, options.namespace, options.kubeconfig)
    findings = replace(findings, workload=found)
    for line in describe_findings(findings, chosen):
        print_line(line)
    if why_not:
        print_line(f"Kubernetes: {why_not}")
    for line in _compare(options.out / STREAM_FILE, findings, chosen, Recording(duration, tick)):
        print_line(line)
    written = _render_files(findings, chosen)
    _write_files(options.out, written)
    print_line(f"Next: trimtab sidecar -c {options.out / 'sidecar.yaml'} --dry-run")
    if RESOURCE_FILE in written:
        apply = f"kubectl apply -f {options.out / RESOURCE_FILE}"
        print_line(f"Then, where a sidecar reads resources (docs/custom-resource.md): {apply}")


def _check_files(folder: Path, names: Sequence[str], *, force: bool) -> None:
    """Make the folder. Raises SettingError for a file that exists, unless `force`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"--out {folder}: {error.strerror}") from None
    existing = [name for name in names if (folder / name).exists()]
    if existing and not force:
        raise SettingError(f"--out {folder} has {', '.join(existing)} already; add --force to overwrite them")


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name in remove_stale_files(folder, files):
        print_line(f"removed {folder / name}, of an earlier run")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    print_line(f"written to {folder}: {', '.join((*files, STREAM_FILE))}")


def remove_stale_files(folder: Path, written: Collection[str]) -> list[str]:
    """Remove the resources of an earlier run that this one does not write; return their names."""
    stale = [n for n in RESOURCE_FILES if n not in written and (folder / n).exists()]
    for name in stale:  # else `kubectl apply -f .` would apply them
        (folder / name).unlink()
    return stale


def _look(
    options: InitOptions, settings: SidecarSettings, duration: float, *, capacity_known: bool
) -> tuple[GroupFindings, float]:
    """Record for `duration` seconds; return what the group tells then, and the seconds of a tick."""
    clock = SystemClock()
    with closing(GroupMonitor(settings, clock)) as monitor:
        control_topics = ControlTopicStore(settings, monitor.brokers.admin)
        wait = install_signal_waiter()
        wait_for_consumers(monitor, settings.group, clock, wait)
        source = select_tick_source(settings, monitor, control_topics, clock)
        _record_stream(options.out / STREAM_FILE, source, duration, clock, wait)
        measured = monitor.measure()
        plan = control_topics.read_plan()
        findings = GroupFindings(
            bootstrap=settings.bootstrap,
            group=settings.group,
            observed=measured.group,
            loads=fill_write_rates(measured.load.write_rates, control_topics.read_write_rates()),
            protocol=_read_assignor(monitor, settings),
            plan_capacity=None if plan is None else plan.capacity,
            given_capacity=settings.capacity if capacity_known else None,
            kafka=parse_pairs("--kafka", options.kafka) or {},
        )
    return findings, source.window


def _record_stream(
    path: Path, source: TickSource, duration: float, clock: Clock, wait: Callable[[float], bool]
) -> None:
    """Record a stream file; one of an earlier run stays until this one is complete. Raises SettingError."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    file = StreamFile(part, source.window)
    try:
        record_ticks(source, file, duration, clock, wait)
    finally:
        file.close()
    if file.tick_count < 2:  # noqa: PLR2004 - a decision comes at the end of a tick
        part.unlink(missing_ok=True)
        raise SettingError(
            f"the recording of {duration:g} s has less than two ticks of {source.window:g} s; "
            f'write --duration "{3 * source.window:g} s" or longer'
        )
    part.replace(path)


def fill_write_rates(
    measured: Mapping[TopicPartition, PartitionLoad], published: Mapping[str, TopicWriteRates]
) -> dict[TopicPartition, PartitionLoad]:
    """Return the measured loads, with the rates that a sidecar has published for those not measured yet."""
    known = {TopicPartition(t, n): load for t, one in published.items() for n, load in one.partitions.items()}
    return {
        p: replace(load, bytes_per_s=known[p].bytes_per_s)
        if load.bytes_per_s is None and p in known
        else load
        for p, load in measured.items()
    }


def _read_assignor(monitor: GroupMonitor, settings: SidecarSettings) -> str:
    # the old request, as in BrokerClient: the new one may abort the process while the coordinator is down
    groups: list[Any] = monitor.brokers.admin.list_groups(settings.group, timeout=settings.timeout)
    return next((str(one.protocol) for one in groups if one.id == settings.group), "")


class Recording(NamedTuple):
    """Seconds of a recording and of one of its ticks."""

    duration: float
    tick: float


def _compare(
    stream_file: Path, findings: GroupFindings, capacity: ChosenCapacity, recording: Recording
) -> list[str]:
    """Return the comparison by replay, or why there is none, a line each."""
    if why_not := explain_no_comparison(capacity, recording.duration):
        return [why_not]
    results = _replay(stream_file, capacity.bytes_per_s, recording.tick)
    return describe_saving(results, max(1, len(findings.observed.members)), recording.duration)


def _replay(stream_file: Path, capacity: float, tick: float) -> list[ReplayResult]:
    stream = parse_stream(stream_file.read_text(encoding="utf-8"))
    setup = SimulationSetup(capacity=capacity, headroom=LIVE_HEADROOM, tick=tick)
    jobs = [SimulationJob(0, name, setup.headroom) for name in CONTENDERS]
    with open_progress() as progress:
        task = progress.add_task("replaying", total=len(jobs))
        runs = run_jobs(jobs, [stream], setup, 1, lambda _: progress.advance(task), live=LiveSettings())
    means = build_findings("recorded", [stream], setup, runs, 1.0).mean_summaries
    return [
        ReplayResult(name, one.mean_consumers, one.late_percent, one.moves_per_hour)
        for name, one in means.items()
    ]


def _render_files(findings: GroupFindings, capacity: ChosenCapacity) -> Mapping[str, str]:
    files = {
        "sidecar.yaml": render_sidecar_settings(findings, capacity),
        "ingest.yaml": render_ingest_settings(findings, capacity),
        "way-back.md": render_way_back(findings, capacity),
    }
    found = findings.workload
    if found is not None and is_resource_wanted(findings, capacity):
        files[RESOURCE_FILE] = render_scaler_resource(findings, found, capacity)
    if found is not None and found.scaled_object and may_scale(findings, capacity):
        before = yaml.safe_dump(strip_server_fields(found.scaled_object), sort_keys=False)
        files |= {
            "scaledobject.yaml": render_scaled_object(findings, found),
            "scaledobject.before.yaml": before,
        }
    return files
