"""Rolling bounce: how long partitions wait while each instance is stopped and started in turn.

10 instances, 40 partitions at 100 records/s each; every 4 s one instance stops, stays away for a
second, as a program does that starts again, and comes back. The pause is the sum over partitions of
what they wait beyond 100 ms between two records handled. All sides read from the same embedded
broker, one after the other, with the same heartbeat, session timeout and otherwise default
settings.

- `trimtab`: our consumer, a process each. To stop, an instance calls `drain()`, goes on reading
  until the others have taken over, then closes.
- `trimtab_close`: the same, but an instance that stops just closes.
- `trimtab_static`: with `group.instance.id`, and just closed: it comes back before its session has
  ended, so that nothing moves, and its partitions wait.
- `eager`, `java_cooperative`: Java's consumer with the range and the cooperative-sticky assignor;
  it has no `drain()`. The instances are threads of one JVM, warm from the first bounce on.
- `java_cooperative_3s`: at its default heartbeat of 3 s.

An instance's process (the JVM, too) lives on while it is away, for all sides alike: what a restart
costs a program beside its membership is not measured.
"""

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from threading import Thread
from time import monotonic, sleep
from typing import Any

import bounce_plot
import harness
from bounce_figures import Figures, figures, read
from rich.console import Console
from rich.table import Table

HOST = Path(__file__).parent / "bounce_host.py"
PATIENCE = 90.0
"""Seconds until an instance that does not answer is given up."""


@dataclass(frozen=True, slots=True)
class Side:
    """Who reads: Java's consumer with an assignor, or ours, with how it stops."""

    heartbeat_ms: int
    assignor: str = ""
    leave: str = "drain"
    static: bool = False


SIDES = {
    "trimtab": Side(250),
    "trimtab_close": Side(250, leave="close"),
    "trimtab_static": Side(250, leave="close", static=True),
    "eager": Side(250, "RangeAssignor"),
    "java_cooperative": Side(250, "CooperativeStickyAssignor"),
    "java_cooperative_3s": Side(3000, "CooperativeStickyAssignor"),
}

COMPARED = ("trimtab", "eager", "java_cooperative")
"""Those that are run `--runs` times; the others once."""


def main() -> None:
    given = _arguments()
    found: dict[str, list[Figures]] = {name: [] for name in given.sides}
    with harness.broker(given.bootstrap) as bootstrap:
        for turn in range(given.runs):
            for name in (n for n in given.sides if turn == 0 or n in COMPARED):
                found[name].append(bounce(bootstrap, SIDES[name], given))
                print(f"run {turn + 1}, {name}: {_told(found[name][-1])}", file=sys.stderr)
    show(found)
    if given.plot:
        bounce_plot.draw(given.plot, found)
        print(f"plot: {given.plot}")
    harness.result(_result(found, given))


def _arguments() -> Namespace:
    arguments: ArgumentParser = harness.parser(__doc__ or "")
    arguments.add_argument("--runs", type=int, default=1, help=f"of {', '.join(COMPARED)}")
    arguments.add_argument("--sides", nargs="+", choices=SIDES, default=tuple(SIDES))
    arguments.add_argument("--instances", type=int, default=10)
    arguments.add_argument("--partitions", type=int, default=40)
    arguments.add_argument("--rate", type=float, default=100, help="records/s and partition")
    arguments.add_argument("--apart", type=float, default=4, help="seconds from stop to stop")
    arguments.add_argument("--away", type=float, default=1, help="seconds from stopped to started")
    arguments.add_argument("--settle", type=float, default=10, help="seconds before the first")
    arguments.add_argument("--plot", type=Path, help="write a picture there")
    arguments.add_argument("--quick", action="store_true", help="3 instances, 6 partitions")
    given = arguments.parse_args()
    if given.quick:
        given.instances, given.partitions, given.apart, given.settle = 3, 6, 3.0, 2.0
    return given


def bounce(bootstrap: str, side: Side, given: Namespace) -> Figures:
    """Run one side once."""
    topic = harness.new_topic(bootstrap, given.partitions)
    with (
        tempfile.TemporaryDirectory() as folder,
        harness.produced(bootstrap, topic, given.partitions, given.rate),
    ):
        with instances(bootstrap, topic, side, given.instances, Path(folder)) as group:
            for number in range(given.instances):
                group.tell("start", number)
            for _ in range(given.instances):
                group.hear()
            sleep(given.settle)
            begin = monotonic()
            for number in range(given.instances):
                restart(group, number, given.away)
                sleep(max(0.0, begin + (number + 1) * given.apart - monotonic()))
            end = monotonic()
        return figures(read(Path(folder)), begin, end)


def restart(group: "Instances", number: int, away: float) -> None:
    group.tell("stop", number)
    while group.hear() != f"stopped {number}":
        pass
    sleep(away)
    group.tell("start", number)


@dataclass(frozen=True, slots=True)
class Instances:
    """The instances of a run: `hosts` has the process of each, which may be one for all."""

    hosts: Sequence["subprocess.Popen[str]"]
    answers: "SimpleQueue[str]"

    def tell(self, what: str, number: int) -> None:
        to = self.hosts[number].stdin
        assert to is not None
        to.write(f"{what} {number}\n")
        to.flush()

    def hear(self) -> str:
        """Return the next answer."""
        return self.answers.get(timeout=PATIENCE)


@contextmanager
def instances(bootstrap: str, topic: str, side: Side, count: int, folder: Path) -> Iterator[Instances]:
    """Yield the instances, not started yet; at the end all have written their logs."""
    commands = list(_commands(_settings(bootstrap, topic, side), topic, side, count, folder))
    hosts = [subprocess.Popen(c, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for c in commands]
    group = Instances(hosts * (count // len(hosts)), SimpleQueue())
    for host in hosts:
        Thread(target=_listen, args=(host.stdout, group.answers), daemon=True).start()
    try:
        yield group
        for number in range(0, count, count // len(hosts)):
            group.tell("end", number)
        for host in hosts:
            host.wait(PATIENCE)
    finally:
        for host in hosts:
            host.kill()


def _listen(lines: Iterable[str], answers: "SimpleQueue[str]") -> None:
    for line in lines:
        answers.put(line.strip())


def _settings(bootstrap: str, topic: str, side: Side) -> dict[str, Any]:
    """Return what all sides' consumers share; the rest is each client's default."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "heartbeat.interval.ms": side.heartbeat_ms,
        "session.timeout.ms": 10_000,
        "auto.offset.reset": "earliest",
    }


def _commands(
    settings: Mapping[str, Any], topic: str, side: Side, count: int, folder: Path
) -> Iterator[Sequence[str]]:
    if side.assignor:
        name = f"org.apache.kafka.clients.consumer.{side.assignor}"
        pairs = {**settings, "partition.assignment.strategy": name}
        words = (f"{key}={value}" for key, value in pairs.items())
        yield (*harness.java("Bounce.java", "-Xmx512m"), topic, str(count), str(folder), *words)
        return
    for number in range(count):
        own: dict[str, Any] = {**settings, "topic": topic, "trimtab.instance": str(number)}
        if side.static:
            own["group.instance.id"] = str(number)
        log = folder / f"instance-{number}"
        yield (sys.executable, str(HOST), side.leave, str(number), str(log), json.dumps(own))


def _told(of: Figures) -> str:
    p99 = f", handover p99 {harness.percentile([*of.handovers], 99):.3f} s" if of.handovers else ""
    return (
        f"paused {of.pause_ms:,.0f} ms (still: {of.still_ms:,.0f}), longest {of.longest_ms:,.0f}, "
        f"{of.lost} lost, {of.doubled} doubled{p99}"
    )


def show(found: Mapping[str, Sequence[Figures]]) -> None:
    """Print a table, a line a side."""
    table = Table(title="rolling bounce, medians of the runs")
    for column in ("", "heartbeat ms", "pause ms", "of each run", "longest ms", "still ms"):
        table.add_column(column, justify="right" if column else "left")
    for column in ("handovers", "median s", "p99 s", "lost", "doubled"):
        table.add_column(column, justify="right")
    for name, runs in found.items():
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
    """Return seconds; 0 where nothing was handed over."""
    every = [h for run in runs for h in run.handovers]
    return harness.percentile(every, percent) if len(every) > 1 else 0.0


def _result(found: Mapping[str, Sequence[Figures]], given: Namespace) -> dict[str, Any]:
    return {
        "pause_ms": {n: round(median(r.pause_ms for r in runs)) for n, runs in found.items()},
        "longest_ms": {n: round(max(r.longest_ms for r in runs)) for n, runs in found.items()},
        "still_ms": {n: round(median(r.still_ms for r in runs)) for n, runs in found.items()},
        "handover_p99_s": {n: round(_handover(runs, 99), 3) for n, runs in found.items()},
        "lost": {n: sum(r.lost for r in runs) for n, runs in found.items()},
        "doubled": {n: sum(r.doubled for r in runs) for n, runs in found.items()},
        "heartbeat_ms": {n: SIDES[n].heartbeat_ms for n in found},
        "runs": {n: len(runs) for n, runs in found.items()},
        "instances": given.instances,
        "partitions": given.partitions,
    }


if __name__ == "__main__":
    main()
