"""Groups of other clients, steered and not: one stream through Java, librdkafka and Go consumers.

The same unmodified consumers read the same stream, side after side, from the same embedded broker:

- `own`: the group's leader assigns with its own assignor, cooperative-sticky.
- `led`: `trimtab sidecar --lead` leads the group and carries out its plan.
- `kip848`: `group.protocol=consumer`; the broker's plugin carries out the sidecar's plan.

40 partitions write at Zipf rates, ranks shuffled; after a third of the measured time the ranks are shuffled
anew; in the last third one member of each client is restarted, one after the other. Each consumer handles a
limited number of records/s, of which the stream uses 70 % in all; the sidecar may fill 72 %, and thus needs
all consumers, evenly filled. The balance is the largest member's load ÷ the mean, averaged over time, and
apart from that over three parts of it: the 10 s after the change of rates, the restarts and the 10 s after
them, and the rest.
A pause lasts from an owner's last record of a partition to the next owner's first. A record is late if it
is handled more than 2 s after its production, or never.
"""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import sleep, time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import harness
from benchmarks.sidecar import strangers_plot
from strangers.checker import check_group
from strangers.events import Event
from strangers.figures import (
    balance_at,
    balance_curve,
    count_moves,
    list_ownerships,
    measure_latencies,
    measure_pauses,
)
from strangers.group import StrangerGroup, wait_until
from strangers.steering import LEAD, run_sidecar
from strangers.stream import ZipfStream, zipf_rates
from trimtab.broker_plugin.plugin_jar import ASSIGNOR_CLASS

CLIENTS = ("java", "librdkafka", "go")
UNIFORM_CLASS = "io.trimtab.PlannedUniformAssignor"
PROPERTIES = {"group.consumer.assignors": f"{ASSIGNOR_CLASS},{UNIFORM_CLASS},range"}
"""franz-go asks for Kafka's "uniform" assignor, so the plugin takes its place; `auto` finds that out."""
APART = 4.0
"""Seconds between two restarts."""
ROOM = 1.03
"""Headroom of the sidecar ÷ fraction of the consumers' capacity that the stream uses."""
QUICK = "--interval 500ms --window 2s --cooldown 1s"
"""Settings of a sidecar whose stream changes at a stroke, and varies little otherwise."""
CHANGE_LASTS = 10.0
"""Seconds after a change of rates, or a restart, that belong to it."""
PARTS = ("at_rest", "new_rates", "restarts")
"""Parts of the measured time."""
PATIENCE = 60.0
"""Seconds to wait for the members to join, and for the last records."""


@dataclass(frozen=True, slots=True)
class Side:
    """How a group is steered: `flags` of the sidecar; none without a sidecar."""

    protocol: str = "classic"
    flags: str | None = None


SIDES = {"own": Side(), "led": Side(flags=LEAD), "kip848": Side("consumer", "--protocol auto")}


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a side; `curve` has (seconds since the window's begin, largest load ÷ mean)."""

    curve: tuple[tuple[float, float], ...]
    changes: tuple[float, ...]  # seconds since the window's begin
    latencies: tuple[float, ...]  # seconds, of each record written in the window
    late_percent: float
    moves: int
    pauses: tuple[float, ...]  # seconds each
    lost: int
    doubled: int
    faults: tuple[str, ...]

    @property
    def max_over_mean(self) -> float:
        """Mean over time of the largest member's load ÷ the mean load."""
        return fmean(balance for _, balance in self.curve)

    def balance_in(self, part: str) -> float:
        """Return the mean of the same over a part of the time, one of `PARTS`."""
        return fmean(balance for at, balance in self.curve if self._part_of(at) == part)

    def _part_of(self, at: float) -> str:
        rates, *restarts = self.changes
        if restarts[0] <= at < restarts[-1] + CHANGE_LASTS:  # first: in a short run the other 10 s cover both
            return "restarts"
        return "new_rates" if rates <= at < rates + CHANGE_LASTS else "at_rest"

    @property
    def pause_p99_s(self) -> float:
        return harness.percentile([*self.pauses], 99) if len(self.pauses) > 1 else 0.0


def main() -> None:
    options = _parse_arguments()
    with harness.broker(options.bootstrap, PROPERTIES) as bootstrap, _show_progress() as progress:
        results = {name: run_side(bootstrap, name, options, progress) for name in options.sides}
    print_table(results)
    if options.plot:
        strangers_plot.draw_results(options.plot, results, options.seconds)
        print(f"plot: {options.plot}")
    harness.result({name: _collect_result(figures) for name, figures in results.items()})


def _parse_arguments() -> Namespace:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--sides", nargs="+", choices=SIDES, default=tuple(SIDES))
    arguments.add_argument("--each", type=int, default=2, help="consumers of each client")
    arguments.add_argument("--partitions", type=int, default=40)
    arguments.add_argument("--rate", type=float, default=100, help="records/s that a consumer handles")
    arguments.add_argument("--fill", type=float, default=0.7, help="fraction of that to write in all")
    arguments.add_argument("--exponent", type=float, default=0.8, help="of the Zipf rates")
    arguments.add_argument("--size", type=int, default=500, help="bytes of a record")
    arguments.add_argument("--seconds", type=float, default=120, help="measured seconds of a side")
    arguments.add_argument("--settle", type=float, default=20, help="seconds before, once all have joined")
    arguments.add_argument("--late", type=float, default=2, help="seconds after which a record is late")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--plot", type=Path, help="write the plot to this file")
    return arguments.parse_args()


@contextmanager
def _show_progress() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield progress


def run_side(bootstrap: str, name: str, options: Namespace, progress: Progress) -> Figures:
    """Run one side."""
    topic = harness.new_topic(bootstrap, options.partitions)
    bar = progress.add_task(f"{name}: joining", total=options.settle + options.seconds)
    with (
        tempfile.TemporaryDirectory() as folder,
        _steer_group(bootstrap, topic, SIDES[name], options, Path(folder)),
        StrangerGroup(bootstrap, topic, topic, Path(folder), _client_options(SIDES[name], options)) as group,
    ):
        members = _join_members(group, options)
        stream = ZipfStream(bootstrap, topic, _generate_rates(options), options.size)
        with stream:
            for done in _follow_course(group, stream.begin, options):
                progress.update(
                    bar, completed=done, description=_describe_group(name, group, stream, members)
                )
        progress.update(bar, completed=options.settle + options.seconds)
        if not wait_until(lambda: group.has_read(stream.written), PATIENCE):
            print(f"{name}: not everything was read within {PATIENCE:.0f} s", file=sys.stderr)
        group.stop(*group.members)
        figures = measure_events(group.events(), stream, options)
    print(f"{name}: {_find_log_format(figures)}", *figures.faults[:5], sep="\n  ", file=sys.stderr)
    harness.delete_topic(bootstrap, topic)
    return figures


@contextmanager
def _steer_group(bootstrap: str, topic: str, side: Side, options: Namespace, folder: Path) -> Iterator[None]:
    if side.flags is None:
        yield
        return
    count = options.each * len(CLIENTS)
    load = f"--capacity {options.rate * options.size:.0f} --headroom {options.fill * ROOM:.2f}"
    flags = f"{load} --min {count} --max {count} {QUICK} {side.flags}"
    with run_sidecar(bootstrap, topic, topic, folder / "sidecar.log", flags) as sidecar:
        if side.protocol == "classic":
            sidecar.wait_ready(PATIENCE)  # the first member leads
        yield


def _client_options(side: Side, options: Namespace) -> Mapping[str, str]:
    return {"protocol": side.protocol, "assignors": "cooperative-sticky", "rate": str(options.rate)}


def _join_members(group: StrangerGroup, options: Namespace) -> int:
    """Start the members; return their number once every partition has an owner."""
    for number in range(1, options.each + 1):
        for client in CLIENTS:
            group.add(f"{client}-{number}", client)
    if not wait_until(lambda: len(group.owners()) == options.partitions, PATIENCE):
        raise TimeoutError(f"the group does not own all partitions after {PATIENCE:.0f} s")
    return len(group.members)


def _generate_rates(options: Namespace) -> Callable[[float], Sequence[float]]:
    """Return the rates by partition, as a function of the seconds since the start."""
    total = options.fill * options.rate * options.each * len(CLIENTS)
    shapes = [
        zipf_rates(options.partitions, total, options.exponent, seed)
        for seed in (options.seed, options.seed + 1)
    ]
    change = options.settle + list_changes(options)[0]
    return lambda seconds: shapes[seconds >= change]


def list_changes(options: Namespace) -> tuple[float, ...]:
    """Return when the rates change and each restart begins, in seconds since the window's begin."""
    restarts = (options.seconds * 2 / 3 + APART * number for number in range(len(CLIENTS)))
    return (options.seconds / 3, *restarts)


def _follow_course(group: StrangerGroup, begin: float, options: Namespace) -> Iterator[float]:
    """Wait for the end of the measured window, with the restarts; yield the seconds until now."""
    length = options.settle + options.seconds
    due = [options.settle + change for change in list_changes(options)[1:]]
    for client, at in zip((*CLIENTS, ""), (*due, length), strict=True):
        while (done := time() - begin) < at:
            yield done
            sleep(min(1.0, at - done))
        if client:
            group.restart(f"{client}-1")


def _describe_group(name: str, group: StrangerGroup, stream: ZipfStream, members: int) -> str:
    now = time()
    balance = balance_at(list_ownerships(group.events()), members, stream.rates_at(now), now)
    return f"{name}: largest load ÷ mean {balance:.2f}"


def measure_events(events: Sequence[Event], stream: ZipfStream, options: Namespace) -> Figures:
    """Return the figures of a side from what its members printed."""
    begin = stream.begin + options.settle
    window = (begin, begin + options.seconds)
    owned = list_ownerships(events)
    inside = {
        partition: {offset: at for offset, at in times.items() if window[0] <= at < window[1]}
        for partition, times in stream.written.items()
    }
    latencies = measure_latencies(events, inside)
    count = sum(map(len, inside.values()))
    verdict = check_group(events, stream.written)
    curve = balance_curve(owned, options.each * len(CLIENTS), stream.rates_at, window)
    return Figures(
        curve=tuple((at - begin, balance) for at, balance in curve),
        changes=list_changes(options),
        latencies=tuple(latencies),
        late_percent=100 * (1 - sum(one <= options.late for one in latencies) / count),
        moves=count_moves(owned, window),
        pauses=tuple(measure_pauses(events, owned, window)),
        lost=verdict.lost,
        doubled=verdict.doubled,
        faults=verdict.faults,
    )


def _find_log_format(of: Figures) -> str:
    return (
        f"largest load ÷ mean {of.max_over_mean:.2f} (at rest {of.balance_in('at_rest'):.2f}), "
        f"late {of.late_percent:.1f} %, "
        f"{of.moves} moves, pause p99 {of.pause_p99_s:.2f} s, {of.lost} lost, {of.doubled} doubled"
    )


def print_table(results: Mapping[str, Figures]) -> None:
    """Print a table with a row per side."""
    table = Table(title="Java, librdkafka and Go consumers under one stream")
    columns = (
        "largest load ÷ mean",
        "at rest",
        "new rates",
        "restarts",
        "late",
        "p99 s",
        "moves",
        "pause p99 s",
        "lost",
        "doubled",
    )
    for column in ("", *columns):
        table.add_column(column, justify="right" if column else "left")
    for name, of in results.items():
        balance = (f"{of.max_over_mean:.2f}", *(f"{of.balance_in(part):.2f}" for part in PARTS))
        lateness = (f"{of.late_percent:.1f} %", f"{harness.percentile([*of.latencies], 99):.2f}")
        counts = (str(of.moves), f"{of.pause_p99_s:.2f}", str(of.lost), str(of.doubled))
        table.add_row(name, *balance, *lateness, *counts)
    Console(width=140).print(table)


def _collect_result(of: Figures) -> dict[str, Any]:
    return {
        "max_over_mean": round(of.max_over_mean, 3),
        **{f"max_over_mean_{part}": round(of.balance_in(part), 3) for part in PARTS},
        "late_percent": round(of.late_percent, 2),
        "moves": of.moves,
        "pause_p99_s": round(of.pause_p99_s, 3),
        "lost": of.lost,
        "doubled": of.doubled,
    }


if __name__ == "__main__":
    main()
