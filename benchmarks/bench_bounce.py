"""Rolling bounce: processing pauses while each instance is stopped and restarted in turn.

10 instances, 40 partitions at 100 records/s each; every 4 s one instance stops for a second, the
time of a restart. The pause is the sum over all partitions of the time beyond 100 ms between two
handled records. All sides read from the same embedded broker, one after the other, with the same
heartbeat and session timeout and otherwise default settings.

- `trimtab`: Trimtab's consumer, one process each. To stop, an instance calls `drain()`, reads until
  the others have taken over, then closes.
- `trimtab_close`: the same, but an instance stops with `close()` only.
- `trimtab_static`: with `group.instance.id` and `close()` only: the instance returns within its
  session timeout, so no partition moves, and its partitions wait.
- `eager`, `java_cooperative`: Java's consumer with the range and the cooperative-sticky assignor;
  it has no `drain()`. The instances are threads of one JVM, warm from the first bounce on.
- `java_cooperative_3s`: with the default heartbeat interval of 3 s.
- `librdkafka_cooperative`: confluent-kafka's consumer, one process each.
- `java_led`, `librdkafka_led`: the same cooperative groups, led by `trimtab sidecar --lead`.
- `java_kip848`, `librdkafka_kip848`: `group.protocol=consumer` with the broker's `uniform` assignor and its
  default heartbeat interval of 5 s; `..._500ms` with the group's interval set to 0.5 s.
- `java_planned_500ms`, `librdkafka_planned_500ms`: the same under a sidecar, by the broker's plugin.

On all sides an instance's process (also the JVM) survives the restart: only the cost of the
membership change is measured, not that of a process start.
"""

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from threading import Thread
from time import monotonic, sleep
from typing import Any

import bounce_plot
import harness
from bounce_figures import Figures, figures, read
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from rich.console import Console
from rich.table import Table

from strangers.steering import LEAD, run_sidecar
from trimtab.broker_plugin.plugin_jar import ASSIGNOR_CLASS

HOST = Path(__file__).parent / "bounce_host.py"
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


JAVA_ASSIGNORS = "org.apache.kafka.clients.consumer."
EAGER = {"partition.assignment.strategy": f"{JAVA_ASSIGNORS}RangeAssignor"}
COOPERATIVE = {
    "java": {"partition.assignment.strategy": f"{JAVA_ASSIGNORS}CooperativeStickyAssignor"},
    "librdkafka": {"partition.assignment.strategy": "cooperative-sticky"},
}
KIP_848 = {"group.protocol": "consumer"}
PLANNED = "--protocol consumer"
SIDES = {
    "trimtab": ClientVariant(250),
    "trimtab_close": ClientVariant(250, leave="close"),
    "trimtab_static": ClientVariant(250, leave="close", static=True),
    "eager": ClientVariant(250, "java", EAGER),
    "java_cooperative": ClientVariant(250, "java", COOPERATIVE["java"]),
    "java_cooperative_3s": ClientVariant(3000, "java", COOPERATIVE["java"]),
    "librdkafka_cooperative": ClientVariant(250, "librdkafka", COOPERATIVE["librdkafka"]),
    "java_led": ClientVariant(250, "java", COOPERATIVE["java"], flags=LEAD),
    "librdkafka_led": ClientVariant(250, "librdkafka", COOPERATIVE["librdkafka"], flags=LEAD),
    "java_kip848": ClientVariant(5000, "java", KIP_848),
    "java_kip848_500ms": ClientVariant(500, "java", KIP_848),
    "librdkafka_kip848": ClientVariant(5000, "librdkafka", KIP_848),
    "librdkafka_kip848_500ms": ClientVariant(500, "librdkafka", KIP_848),
    "java_planned_500ms": ClientVariant(500, "java", KIP_848, flags=PLANNED),
    "librdkafka_planned_500ms": ClientVariant(500, "librdkafka", KIP_848, flags=PLANNED),
}

COMPARED = ("trimtab", "eager", "java_cooperative")
"""Sides that run `--runs` times; the others run once."""


def main() -> None:
    options = _arguments()
    results: dict[str, list[Figures]] = {name: [] for name in options.sides}
    with harness.broker(options.bootstrap, PROPERTIES) as bootstrap:
        for turn in range(options.runs):
            for name in (n for n in options.sides if turn == 0 or n in COMPARED):
                results[name].append(bounce(bootstrap, SIDES[name], options))
                print(f"run {turn + 1}, {name}: {_format(results[name][-1])}", file=sys.stderr)
    show(results)
    if options.plot:
        bounce_plot.draw(options.plot, results)
        print(f"plot: {options.plot}")
    harness.result(_result(results, options))


def _arguments() -> Namespace:
    arguments: ArgumentParser = harness.parser(__doc__ or "")
    arguments.add_argument("--runs", type=int, default=1, help=f"runs of {', '.join(COMPARED)}")
    arguments.add_argument("--sides", nargs="+", choices=SIDES, default=tuple(SIDES))
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


def bounce(bootstrap: str, variant: ClientVariant, options: Namespace) -> Figures:
    """Run one side once and return its figures."""
    topic = harness.new_topic(bootstrap, options.partitions)
    if variant.settings == KIP_848:
        set_heartbeat(bootstrap, topic, variant.heartbeat_ms)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as logs,
        steered(bootstrap, topic, variant, options, Path(logs)),
        harness.produced(bootstrap, topic, options.partitions, options.rate),
    ):
        with instances(bootstrap, topic, variant, options.instances, Path(folder)) as group:
            for number in range(options.instances):
                group.send("start", number)
            for _ in range(options.instances):
                group.read_reply()
            sleep(options.settle)
            begin = monotonic()
            for number in range(options.instances):
                restart(group, number, options.away)
                sleep(max(0.0, begin + (number + 1) * options.apart - monotonic()))
            end = monotonic()
        return figures(read(Path(folder)), begin, end)


def set_heartbeat(bootstrap: str, group: str, milliseconds: int) -> None:
    """Set the heartbeat interval of a group of the new protocol; the broker has a minimum."""
    entry = ConfigEntry(HEARTBEAT_CONFIG, str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


@contextmanager
def steered(
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


def restart(group: "Instances", number: int, away: float) -> None:
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
def instances(
    bootstrap: str, topic: str, variant: ClientVariant, count: int, folder: Path
) -> Iterator[Instances]:
    """Yield the stopped instances; after the context all have written their logs."""
    commands = list(_commands(_settings(bootstrap, topic, variant), topic, variant, count, folder))
    hosts = [subprocess.Popen(c, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for c in commands]
    group = Instances(hosts * (count // len(hosts)), SimpleQueue())
    for host in hosts:
        Thread(target=_listen, args=(host.stdout, group.answers), daemon=True).start()
    try:
        yield group
        for number in range(0, count, count // len(hosts)):
            group.send("end", number)
        for host in hosts:
            host.wait(PATIENCE)
    finally:
        for host in hosts:
            host.kill()


def _listen(lines: Iterable[str], answers: "SimpleQueue[str]") -> None:
    for line in lines:
        answers.put(line.strip())


def _settings(bootstrap: str, topic: str, variant: ClientVariant) -> dict[str, Any]:
    """Return the common consumer settings; all others are the client's defaults."""
    common = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    if variant.settings == KIP_848:
        return {**common, **variant.settings}  # the broker has the timeouts
    timeouts = {"heartbeat.interval.ms": variant.heartbeat_ms, "session.timeout.ms": 10_000}
    return {**common, **timeouts, **variant.settings}


def _commands(
    settings: Mapping[str, Any], topic: str, variant: ClientVariant, count: int, folder: Path
) -> Iterator[Sequence[str]]:
    if variant.client == "java":
        words = (f"{key}={value}" for key, value in settings.items())
        yield (*harness.java("Bounce.java", "-Xmx512m"), topic, str(count), str(folder), *words)
        return
    for number in range(count):
        own: dict[str, Any] = {**settings, "topic": topic}
        if variant.client == "trimtab":
            own["trimtab.instance"] = str(number)
        if variant.static:
            own["group.instance.id"] = str(number)
        log = folder / f"instance-{number}"
        leave = variant.leave if variant.client == "trimtab" else "plain"
        yield (sys.executable, str(HOST), leave, str(number), str(log), json.dumps(own))


def _format(of: Figures) -> str:
    p99 = f", handover p99 {harness.percentile([*of.handovers], 99):.3f} s" if of.handovers else ""
    return (
        f"paused {of.pause_ms:,.0f} ms (still: {of.still_ms:,.0f}), longest {of.longest_ms:,.0f}, "
        f"{of.lost} lost, {of.doubled} doubled{p99}"
    )


def show(results: Mapping[str, Sequence[Figures]]) -> None:
    """Print a table with a row per side."""
    table = Table(title="rolling bounce, medians of the runs")
    for column in ("", "heartbeat ms", "pause ms", "of each run", "longest ms", "still ms"):
        table.add_column(column, justify="right" if column else "left")
    for column in ("handovers", "median s", "p99 s", "lost", "doubled"):
        table.add_column(column, justify="right")
    for name, runs in results.items():
        table.add_row(name, str(SIDES[name].heartbeat_ms), *_cells(runs))
    Console(width=150).print(table)


def _cells(runs: Sequence[Figures]) -> Iterator[str]:
    yield f"{median(r.pause_ms for r in runs):,.0f}"
    yield " ".join(f"{r.pause_ms:,.0f}" for r in runs)
    yield f"{max(r.longest_ms for r in runs):,.0f}"
    yield f"{median(r.still_ms for r in runs):,.0f}"
    yield str(sum(len(r.handovers) for r in runs))
    yield f"{_handover(runs, 50):.3f}"
    yield f"{_handover(runs, 99):.3f}"
    yield str(sum(r.lost for r in runs))
    yield str(sum(r.doubled for r in runs))


def _handover(runs: Sequence[Figures], percent: int) -> float:
    """Return a percentile of the handovers in seconds; 0 without a handover."""
    every = [h for run in runs for h in run.handovers]
    return harness.percentile(every, percent) if len(every) > 1 else 0.0


def _result(results: Mapping[str, Sequence[Figures]], options: Namespace) -> dict[str, Any]:
    return {
        "pause_ms": {n: round(median(r.pause_ms for r in runs)) for n, runs in results.items()},
        "longest_ms": {n: round(max(r.longest_ms for r in runs)) for n, runs in results.items()},
        "still_ms": {n: round(median(r.still_ms for r in runs)) for n, runs in results.items()},
        "handover_p99_s": {n: round(_handover(runs, 99), 3) for n, runs in results.items()},
        "lost": {n: sum(r.lost for r in runs) for n, runs in results.items()},
        "doubled": {n: sum(r.doubled for r in runs) for n, runs in results.items()},
        "heartbeat_ms": {n: SIDES[n].heartbeat_ms for n in results},
        "runs": {n: len(runs) for n, runs in results.items()},
        "instances": options.instances,
        "partitions": options.partitions,
    }


if __name__ == "__main__":
    main()
