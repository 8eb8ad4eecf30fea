"""Rolling bounce: processing pauses while each instance is stopped and restarted in turn.

10 instances, 40 partitions at 100 records/s each; every 4 s one instance stops for a second, the
time of a restart. The pause is the sum over all partitions of the time beyond 100 ms between two
handled records. All sides read from the same embedded broker, one after the other, with the same
heartbeat and session timeout and otherwise default settings.

- `trimtab`: Trimtab's consumer, one process each. To stop, an instance calls `drain()`, reads until
  the others have taken over, then closes.
- `trimtab_second_round`: the same without `trimtab.start.at.release`.
- `trimtab_close`: as `trimtab`, but an instance stops with `close()` only.
- `trimtab_static`: with `group.instance.id` and `close()` only: the instance returns within its
  session timeout, so no partition moves, and its partitions wait.
- `eager`, `java_cooperative`: Java's consumer with the range and the cooperative-sticky assignor;
  it has no `drain()`. The instances are threads of one JVM, warm from the first bounce on.
- `java_cooperative_commits`: the same with a listener that commits the revoked partitions. By default
  that consumer commits when a rebalance begins, and reads on: the next owner reads those records again.
- `java_cooperative_3s`: with the default heartbeat interval of 3 s.
- `librdkafka_cooperative`: confluent-kafka's consumer, one process each.
- `java_led`, `java_led_commits`, `librdkafka_led`: these cooperative groups, led by `trimtab sidecar --lead`.
- `java_kip848`, `librdkafka_kip848`: `group.protocol=consumer` with the broker's `uniform` assignor and its
  default heartbeat interval of 5 s; `..._500ms` with the group's interval set to 0.5 s.
- `java_planned_500ms`, `librdkafka_planned_500ms`: the same under a sidecar, by the broker's plugin.

- `trimtab_threads`, `eager_processes`, `java_cooperative_processes`: hosted the other way round, as
  threads of one process, or as one JVM each.

On all sides an instance's process (also the JVM) survives the restart: only the cost of the
membership change is measured, not that of a process start.

With `--busy RUNS` the sides of COMPARED run RUNS times more, alternately, and those three once, while a
process beside them computes on each core. Broker and producer, which would run elsewhere, take precedence
over the instances and what computes beside them.
"""

import json
import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from threading import Thread
from time import monotonic, sleep
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.consumer import bounce_host, bounce_plot
from benchmarks.consumer.bounce_figures import Figures, read_handled_records, summarize_bounce
from strangers.steering import LEAD, run_sidecar
from trimtab.broker_plugin.plugin_jar import ASSIGNOR_CLASS

HOST = bounce_host.__name__
NICE = ("nice", "-n", "10")
"""Command that gives way to broker and producer."""
PATIENCE = 90.0
"""Seconds to wait for an instance's reply."""
FILL = 0.83
"""Fraction of the instances' capacity that the stream uses; a sidecar fills up to 0.9."""
HEARTBEAT_CONFIG = "consumer.heartbeat.interval.ms"
PROPERTIES = {"group.consumer.assignors": f"uniform,{ASSIGNOR_CLASS}"}  # a pilot asks for ours


@dataclass(frozen=True, slots=True)
class ClientVariant:
    """A consumer under test, its settings and, if a sidecar steers the group, that one's flags."""

    heartbeat_ms: int
    client: str = "trimtab"  # or java, librdkafka
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    leave: str = "drain"  # of Trimtab's consumer; the others close
    static: bool = False
    flags: str = ""
    processes: bool = True  # one for each instance, else one for all


JAVA_ASSIGNORS = "org.apache.kafka.clients.consumer."
EAGER = {"partition.assignment.strategy": f"{JAVA_ASSIGNORS}RangeAssignor"}
COOPERATIVE = {
    "java": {"partition.assignment.strategy": f"{JAVA_ASSIGNORS}CooperativeStickyAssignor"},
    "librdkafka": {"partition.assignment.strategy": "cooperative-sticky"},
}
COMMITS = {**COOPERATIVE["java"], "bench.commit.revoked": "true"}
KIP_848 = {"group.protocol": "consumer"}
PLANNED = "--protocol consumer"
SIDES = {
    "trimtab": ClientVariant(250),
    "trimtab_second_round": ClientVariant(250, settings={"trimtab.start.at.release": "false"}),
    "trimtab_close": ClientVariant(250, leave="close"),
    "trimtab_static": ClientVariant(250, leave="close", static=True),
    "eager": ClientVariant(250, "java", EAGER, processes=False),
    "java_cooperative": ClientVariant(250, "java", COOPERATIVE["java"], processes=False),
    "java_cooperative_commits": ClientVariant(250, "java", COMMITS, processes=False),
    "java_cooperative_3s": ClientVariant(3000, "java", COOPERATIVE["java"], processes=False),
    "librdkafka_cooperative": ClientVariant(250, "librdkafka", COOPERATIVE["librdkafka"]),
    "java_led": ClientVariant(250, "java", COOPERATIVE["java"], flags=LEAD, processes=False),
    "java_led_commits": ClientVariant(250, "java", COMMITS, flags=LEAD, processes=False),
    "librdkafka_led": ClientVariant(250, "librdkafka", COOPERATIVE["librdkafka"], flags=LEAD),
    "java_kip848": ClientVariant(5000, "java", KIP_848, processes=False),
    "java_kip848_500ms": ClientVariant(500, "java", KIP_848, processes=False),
    "librdkafka_kip848": ClientVariant(5000, "librdkafka", KIP_848),
    "librdkafka_kip848_500ms": ClientVariant(500, "librdkafka", KIP_848),
    "java_planned_500ms": ClientVariant(500, "java", KIP_848, flags=PLANNED, processes=False),
    "librdkafka_planned_500ms": ClientVariant(500, "librdkafka", KIP_848, flags=PLANNED),
    "trimtab_threads": ClientVariant(250, processes=False),
    "eager_processes": ClientVariant(250, "java", EAGER),
    "java_cooperative_processes": ClientVariant(250, "java", COOPERATIVE["java"]),
}

COMPARED = ("trimtab", "eager", "java_cooperative")
"""Sides that run `--runs` times; the others run once."""
BUSY = (*COMPARED, "trimtab_threads", "eager_processes", "java_cooperative_processes")
"""Sides that run on a busy machine, too."""


def main() -> None:
    options = _parse_arguments()
    with harness.broker(options.bootstrap, PROPERTIES) as bootstrap:
        results = bounce_in_turns(bootstrap, options.sides, options.runs, options)
        with busy_cores():
            busy = bounce_in_turns(bootstrap, BUSY, options.busy, options)
    print_table("rolling bounce, medians of the runs", results)
    print_table("while a process computes on each core", busy)
    if options.plot:
        bounce_plot.draw_results(options.plot, results)
        print(f"plot: {options.plot}")
    harness.result(_collect_result(results, busy, options))


def _parse_arguments() -> Namespace:
    arguments: ArgumentParser = harness.parser(__doc__ or "")
    arguments.add_argument("--runs", type=int, default=1, help=f"runs of {', '.join(COMPARED)}")
    arguments.add_argument("--sides", nargs="*", choices=SIDES, default=tuple(SIDES))
    arguments.add_argument(
        "--busy",
        type=int,
        default=0,
        help=f"runs of {', '.join(COMPARED)} while a process computes on each core",
    )
    arguments.add_argument("--instances", type=int, default=10)
    arguments.add_argument("--partitions", type=int, default=40)
    arguments.add_argument("--rate", type=float, default=100, help="records/s per partition")
    arguments.add_argument("--apart", type=float, default=4, help="seconds between two stops")
    arguments.add_argument("--away", type=float, default=1, help="seconds from stop to restart")
    arguments.add_argument("--settle", type=float, default=10, help="seconds before the first stop")
    arguments.add_argument("--plot", type=Path, help="write the plot to this file")
    arguments.add_argument("--quick", action="store_true", help="3 instances, 6 partitions")
    options = arguments.parse_args()
    if options.quick:
        options.instances, options.partitions, options.apart, options.settle = 3, 6, 3.0, 2.0
    return options


def bounce_in_turns(
    bootstrap: str, sides: Iterable[str], turns: int, options: Namespace
) -> dict[str, list[Figures]]:
    """Run the sides one after the other, in each turn those of COMPARED; return the figures of each run."""
    results: dict[str, list[Figures]] = {}
    for turn in range(turns):
        for name in (n for n in sides if turn == 0 or n in COMPARED):
            run = bounce_group(bootstrap, SIDES[name], options)
            results.setdefault(name, []).append(run)
            print(f"run {turn + 1}, {name}: {_find_log_format(run)}", file=sys.stderr)
    return results


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep each core busy with a process that computes."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            stack.callback(subprocess.Popen([*NICE, sys.executable, "-c", "while True: pass"]).kill)
        yield


def bounce_group(bootstrap: str, variant: ClientVariant, options: Namespace) -> Figures:
    """Run one side once and return its figures."""
    topic = harness.new_topic(bootstrap, options.partitions)
    if variant.settings == KIP_848:
        set_heartbeat(bootstrap, topic, variant.heartbeat_ms)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as logs,
        steer_group(bootstrap, topic, variant, options, Path(logs)),
        harness.produced(bootstrap, topic, options.partitions, options.rate),
    ):
        with run_instances(bootstrap, topic, variant, options.instances, Path(folder)) as group:
            for number in range(options.instances):
                group.send("start", number)
            for _ in range(options.instances):
                group.read_reply()
            sleep(options.settle)
            begin = monotonic()
            for number in range(options.instances):
                restart_instance(group, number, options.away)
                sleep(max(0.0, begin + (number + 1) * options.apart - monotonic()))
            end = monotonic()
        return summarize_bounce(read_handled_records(Path(folder)), begin, end)


def set_heartbeat(bootstrap: str, group: str, milliseconds: int) -> None:
    """Set the heartbeat interval of a group of the new protocol; the broker has a minimum."""
    entry = ConfigEntry(HEARTBEAT_CONFIG, str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


@contextmanager
def steer_group(
    bootstrap: str, topic: str, variant: ClientVariant, options: Namespace, folder: Path
) -> Iterator[None]:
    """Run the sidecar that steers the group, if there is one; it needs all instances for the load."""
    if not variant.flags:
        yield
        return
    load = options.rate * harness.RECORD_BYTES * options.partitions
    capacity = load / options.instances / FILL
    flags = f"--capacity {capacity:.0f} --min {options.instances} --max {options.instances} {variant.flags}"
    with run_sidecar(bootstrap, topic, topic, folder / "sidecar.log", flags) as sidecar:
        if variant.flags == LEAD:
            sidecar.wait_ready(PATIENCE)  # the first member leads
        yield


def restart_instance(group: "Instances", number: int, away: float) -> None:
    group.send("stop", number)
    while group.read_reply() != f"stopped {number}":
        pass
    sleep(away)
    group.send("start", number)


@dataclass(frozen=True, slots=True)
class Instances:
    """The instances of a run: `hosts` has the process of each; one process may host all."""

    hosts: Sequence["subprocess.Popen[str]"]
    answers: "SimpleQueue[str]"

    def send(self, what: str, number: int) -> None:
        to = self.hosts[number].stdin
        assert to is not None
        to.write(f"{what} {number}\n")
        to.flush()

    def read_reply(self) -> str:
        """Return the next reply."""
        return self.answers.get(timeout=PATIENCE)


@contextmanager
def run_instances(
    bootstrap: str, topic: str, variant: ClientVariant, count: int, folder: Path
) -> Iterator[Instances]:
    """Yield the stopped instances; after the context all have written their logs."""
    commands = list(_list_commands(_write_settings(bootstrap, topic, variant), topic, variant, count, folder))
    hosts = [
        subprocess.Popen([*NICE, *c], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for c in commands
    ]
    group = Instances(hosts * (count // len(hosts)), SimpleQueue())
    for host in hosts:
        Thread(target=_read_answers, args=(host.stdout, group.answers), daemon=True).start()
    try:
        yield group
        for number in range(0, count, count // len(hosts)):
            group.send("end", number)
        for host in hosts:
            host.wait(PATIENCE)
    finally:
        for host in hosts:
            host.kill()


def _read_answers(lines: Iterable[str], answers: "SimpleQueue[str]") -> None:
    for line in lines:
        answers.put(line.strip())


def _write_settings(bootstrap: str, topic: str, variant: ClientVariant) -> dict[str, Any]:
    """Return the common consumer settings; all others are the client's defaults."""
    common = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    if variant.settings == KIP_848:
        return {**common, **variant.settings}  # the broker has the timeouts
    timeouts = {"heartbeat.interval.ms": variant.heartbeat_ms, "session.timeout.ms": 10_000}
    own = {"trimtab.instance": bounce_host.NUMBER} if variant.client == "trimtab" else {}
    named = {"group.instance.id": bounce_host.NUMBER} if variant.static else {}
    return {**common, **timeouts, **variant.settings, **own, **named}


def _list_commands(
    settings: Mapping[str, Any], topic: str, variant: ClientVariant, count: int, folder: Path
) -> Iterator[Sequence[str]]:
    """Yield the command of each host; its last arguments are the numbers of its instances."""
    every = [str(number) for number in range(count)]
    for hosted in ([number] for number in every) if variant.processes else (every,):
        if variant.client == "java":
            words = [f"{key}={value}" for key, value in settings.items()]
            heap = "-Xmx512m" if len(hosted) > 1 else "-Xmx128m"
            yield (*harness.java("Bounce.java", heap), topic, str(folder), ",".join(hosted), *words)
        else:
            leave = variant.leave if variant.client == "trimtab" else "plain"
            yield (sys.executable, "-m", HOST, leave, topic, str(folder), json.dumps(settings), *hosted)


def _find_log_format(of: Figures) -> str:
    p99 = f", handover p99 {harness.percentile([*of.handovers], 99):.3f} s" if of.handovers else ""
    return (
        f"paused {of.pause_ms:,.0f} ms (still: {of.still_ms:,.0f}), longest {of.longest_ms:,.0f}, "
        f"{of.lost} lost, {of.doubled} doubled{p99}"
    )


def print_table(title: str, results: Mapping[str, Sequence[Figures]]) -> None:
    """Print a table with a row per side, if there is one."""
    if not results:
        return
    table = Table(title=title)
    for column in ("", "heartbeat ms", "pause ms", "of each run", "longest ms", "still ms"):
        table.add_column(column, justify="right" if column else "left")
    for column in ("handovers", "median s", "p99 s", "lost", "doubled"):
        table.add_column(column, justify="right")
    for name, runs in results.items():
        table.add_row(name, str(SIDES[name].heartbeat_ms), *_format_cells(runs))
    Console(width=150).print(table)


def _format_cells(runs: Sequence[Figures]) -> Iterator[str]:
    yield f"{median(r.pause_ms for r in runs):,.0f}"
    yield " ".join(f"{r.pause_ms:,.0f}" for r in runs)
    yield f"{max(r.longest_ms for r in runs):,.0f}"
    yield f"{median(r.still_ms for r in runs):,.0f}"
    yield str(sum(len(r.handovers) for r in runs))
    yield f"{_find_handover_percentile(runs, 50):.3f}"
    yield f"{_find_handover_percentile(runs, 99):.3f}"
    yield str(sum(r.lost for r in runs))
    yield str(sum(r.doubled for r in runs))


def _find_handover_percentile(runs: Sequence[Figures], percent: int) -> float:
    """Return a percentile of the handovers in seconds; 0 without a handover."""
    every = [h for run in runs for h in run.handovers]
    return harness.percentile(every, percent) if len(every) > 1 else 0.0


def _collect_result(
    results: Mapping[str, Sequence[Figures]], busy: Mapping[str, Sequence[Figures]], options: Namespace
) -> dict[str, Any]:
    return {
        "pause_ms": {n: round(median(r.pause_ms for r in runs)) for n, runs in results.items()},
        "longest_ms": {n: round(max(r.longest_ms for r in runs)) for n, runs in results.items()},
        "still_ms": {n: round(median(r.still_ms for r in runs)) for n, runs in results.items()},
        "handover_p99_s": {n: round(_find_handover_percentile(runs, 99), 3) for n, runs in results.items()},
        "lost": {n: sum(r.lost for r in runs) for n, runs in results.items()},
        "doubled": {n: sum(r.doubled for r in runs) for n, runs in results.items()},
        "heartbeat_ms": {n: SIDES[n].heartbeat_ms for n in results},
        "runs": {n: len(runs) for n, runs in results.items()},
        "instances": options.instances,
        "partitions": options.partitions,
        "busy": _busy_result(busy),
    }


def _busy_result(busy: Mapping[str, Sequence[Figures]]) -> dict[str, Any]:
    return {
        "pause_ms": {n: round(median(r.pause_ms for r in runs)) for n, runs in busy.items()},
        "pause_ms_of_runs": {n: [round(r.pause_ms) for r in runs] for n, runs in busy.items()},
        "longest_ms": {n: round(max(r.longest_ms for r in runs)) for n, runs in busy.items()},
        "still_ms": {n: round(median(r.still_ms for r in runs)) for n, runs in busy.items()},
        "handovers": {
            n: {
                "count": sum(len(r.handovers) for r in runs),
                "median_s": round(_find_handover_percentile(runs, 50), 3),
                "p99_s": round(_find_handover_percentile(runs, 99), 3),
            }
            for n, runs in busy.items()
        },
        "lost": {n: sum(r.lost for r in runs) for n, runs in busy.items()},
        "doubled": {n: sum(r.doubled for r in runs) for n, runs in busy.items()},
    }


if __name__ == "__main__":
    main()
