"""Assignment during a rebalance: Trimtab compared with the assignors of Kafka, kafka-python and aiokafka.

All assignors get the same members, owners and write rates, balanced before a member joins or leaves
(`assign_problem.py`). Figures are medians of warm calls, in CPU ms of the calling thread: "alone" is
the assignor on decoded input, "bytes" is from encoded subscriptions to encoded assignments, "2nd" is
the second round that a cooperative move needs. Each peer runs in its own process; a peer that exceeds
--limit on a problem is stopped and skips the remaining problems of that size.
"""

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.placement import assign_plot, assign_problem
from trimtab.common.settings.shared_defaults import DEFAULT_HEURISTIC

SIZES = ("1000x10", "10000x100", "100000x1000")
GROWTH = ("1000x10", "10000x100", "100000x1000", "500000x10000", "1000000x10000")
JAVA = ("range", "sticky", "cooperative-sticky")
OTHERS = ("java", "kafka-python", "aiokafka")
MEASURES = {"ms": "assign_cpu_ms", "wire_ms": "wire_cpu_ms"}
SECOND = {"second_ms": "second_assign_cpu_ms", "second_wire_ms": "second_wire_cpu_ms"}
QUALITY = ("moves", "max_load_over_mean", "max_count_over_mean")

Figures: TypeAlias = dict[str, Any]
"""Figures of a peer on a problem; empty if it exceeded the limit."""

Results: TypeAlias = dict[str, dict[str, dict[str, Figures]]]
"""Size → scene → peer → figures."""


def main() -> None:
    options = parse_arguments()
    ours = {"trimtab": f"trimtab/{DEFAULT_HEURISTIC}", "trimtab_sticky": "trimtab/sticky"}
    plugin = {"trimtab_plugin": ours["trimtab"].replace("trimtab/", "plugin/")}
    others = {name.replace("-", "_"): name for name in options.peers if name != "java"}
    results: Results = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in options.sizes:
            results[size] = compare_peers(Path(folder), size, ours | plugin | others, options)
        if options.growth:
            for size in (s for s in GROWTH if s not in results):
                results[size] = compare_peers(Path(folder), size, {"trimtab": ours["trimtab"]}, options)
    print_tables(results, options)
    if options.plot:
        assign_plot.draw_scenes(options.plot, {size: _collect_row(results[size]) for size in results})
        print(f"plot: {options.plot}")
    harness.result({size: _collect_row(row) for size, row in results.items()})


def parse_arguments() -> Namespace:
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("--sizes", nargs="*", default=SIZES, help="PARTITIONSxMEMBERS")
    arguments.add_argument("--topics", type=int, default=10, help="topics of equal size")
    arguments.add_argument("--peers", nargs="*", choices=OTHERS, default=OTHERS)
    arguments.add_argument("--limit", type=float, default=60, help="seconds per peer and problem")
    arguments.add_argument("--growth", action="store_true", help=f"measure Trimtab up to {GROWTH[-1]}")
    arguments.add_argument("--quick", action="store_true", help="smallest size, few calls")
    arguments.add_argument("--plot", type=Path, help="write the plot to this file")
    options = arguments.parse_args()
    options.sizes = SIZES[:1] if options.quick else options.sizes
    return options


def compare_peers(
    folder: Path, size: str, peers: dict[str, str], options: Namespace
) -> dict[str, dict[str, Figures]]:
    """Return the figures by scene and peer."""
    partitions, members = map(int, size.split("x"))
    problems = dict(assign_problem.write_scenes(folder, (partitions, members), options.topics))
    results: dict[str, dict[str, Figures]] = {scene: {} for scene in problems}
    for name, peer in peers.items():
        for scene, path in problems.items():
            print(f"{size} {scene}: {peer}", file=sys.stderr)
            figures = run_peer(peer, path, options)
            results[scene][name] = figures
            if not figures:
                break
    if "java" in options.peers and set(peers) - {"trimtab"}:
        for scene, name, figures in run_java_peers(folder, problems, options):
            results[scene][name] = figures
    return results


def run_peer(peer: str, problem: Path, options: Namespace) -> Figures:
    """Time a peer in its own process; returns no figures if it exceeds the limit."""
    command = [sys.executable, "-m", "benchmarks.placement.assign_peers", peer, problem]
    more = ["--memory"] if peer.startswith("trimtab/") else []
    more += ["--seconds", "0"] if options.quick else []
    try:
        done = subprocess.run([*command, *more], capture_output=True, timeout=options.limit, check=True)
    except subprocess.TimeoutExpired:
        return {}
    except subprocess.CalledProcessError as error:
        print(error.stderr.decode(), file=sys.stderr)
        raise
    return dict(json.loads(done.stdout))


def run_java_peers(
    folder: Path, problems: dict[str, Path], options: Namespace
) -> Iterator[tuple[str, str, Figures]]:
    """Yield (scene, name, figures) of Kafka's assignors, all in one warm JVM."""
    first, _ = assign_problem.read_problem(problems["fresh"])
    warm, runs = (25, 9) if len(first.partition_index) >= 100_000 else (200, 51)
    if options.quick:
        warm, runs = 1, 3
    pairs: list[str] = []
    for scene, path in problems.items():
        (folder / f"{path.stem}.out").mkdir()
        pairs += [str(path), str(folder / f"{path.stem}.out")]
        print(f"{path.stem} {scene}: java", file=sys.stderr)
    command = harness.java("Harness.java", "-Xmx4g")
    done = subprocess.run(
        [*command, str(warm), str(runs), *pairs], capture_output=True, check=True, text=True
    )
    scenes = {str(path): scene for scene, path in problems.items()}
    for line in done.stdout.splitlines():
        figures: Figures = json.loads(line)
        problem, _ = assign_problem.read_problem(Path(figures["problem"]))
        owners = np.fromfile(figures["owners"], dtype=">i4").astype(np.int32)
        name = "java_" + figures["assignor"].replace("-", "_")
        scene = scenes[figures["problem"]]
        yield scene, name, figures | assign_problem.measure_quality(problem, owners)


def print_tables(results: Results, options: Namespace) -> None:
    """Print one table per size."""
    console = Console(width=150)
    for size, scenes in results.items():
        table = Table(title=f"{size.replace('x', ' partitions x ')} members, {options.topics} topics")
        for column in ("", "assignor", "alone ms", "bytes ms", "wall ms", "2nd alone", "2nd bytes"):
            table.add_column(column, justify="left" if column in {"", "assignor"} else "right")
        for column in ("moves", "max/mean load", "max/mean count", "peak MB"):
            table.add_column(column, justify="right")
        for scene, peers in scenes.items():
            for name, figures in peers.items():
                table.add_row(scene, name, *_format_cells(figures, options.limit))
            table.add_section()
        console.print(table)


def _format_cells(figures: Figures, limit: float) -> Sequence[str]:
    if not figures:
        return [f"> {limit:.0f} s"]
    keys = (*MEASURES.values(), "wire_wall_ms", *SECOND.values(), *QUALITY, "peak_mb")
    return [_format_number(figures[key]) if key in figures else "" for key in keys]


def _format_number(value: float) -> str:
    digits = 0 if isinstance(value, int) or value >= 10 else 2
    return f"{value:,.{digits}f}"


def _collect_row(scenes: dict[str, dict[str, Figures]]) -> dict[str, dict[str, Any]]:
    """Return the figures of a size for the RESULT line; null if a peer exceeded the limit."""
    row: dict[str, dict[str, Any]] = {}
    for scene, peers in scenes.items():
        row[scene] = {}
        for name, figures in peers.items():
            for key, source in (MEASURES | SECOND).items():
                if key in MEASURES or source in figures:
                    value = figures.get(source)
                    row[scene][f"{name}_{key}"] = None if value is None else round(value, 2)
            row[scene] |= {f"{name}_{key}": figures[key] for key in QUALITY if key in figures}
    return row


if __name__ == "__main__":
    main()
