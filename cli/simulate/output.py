"""Findings as tables with one last line for machines, or as JSON."""

import json
from typing import Any, Final

import typer
from rich.console import Console
from rich.table import Table

from trimtab.assignor.analysis.simulation import Run, Summary, contender
from trimtab.assignor.analysis.simulation.recommendation import decimals
from trimtab.cli.output_formats import Format
from trimtab.cli.simulate.findings import Findings
from trimtab.common.units import format_rate

PACKING: Final = (
    ("CBS %", "cbs_percent", 2),
    ("mean R", "mean_r", 1),
    ("moves a tick", "moves_per_tick", 1),
    ("mean consumers", "mean_consumers", 1),
    ("over L2 %", "over_l2_percent", 2),
)
FELT: Final = (
    ("consumer hours", "consumer_hours", 1),
    ("late %", "late_percent", 2),
    ("overload %", "overload_percent", 1),
    ("moves /h", "moves_per_hour", 0),
    ("rebalances /h", "rebalances_per_hour", 0),
    ("starts + stops /h", "starts_stops_per_hour", 0),
)
NONE: Final = "\N{EN DASH}"
"""Of a figure that there is not."""

WIDE: Final = 100
"""Columns of a table that goes into a file or a pipe."""

DIGITS: Final = 4
"""Decimals of a figure in JSON."""


def show(found: Findings, form: Format, capacity: str | None, *, tried: bool) -> None:
    """Print the findings; `capacity` as it was given, `tried` if several headrooms were."""
    if form is Format.JSON:
        typer.echo(json.dumps(_body(found, capacity)))
        return
    console = _console()
    for shown in (PACKING, columns(found)):
        console.print(_table(found, shown))
    if any(s.cbs_percent is None for s in found.means.values()):
        console.print(f"{NONE}: does not pack by capacity, so that its bins cannot be compared")
    if found.duels:
        console.print(_duels(found))
    for line in advice(found, capacity, tried=tried):
        typer.echo(line)
    typer.echo(f"RESULT {json.dumps(_result(found))}")


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, WIDE))


def advice(found: Findings, capacity: str | None, *, tried: bool) -> list[str]:
    """Return the recommendation as lines of text: reason, then settings to write."""
    lines = _oversized(found)
    if found.advice is None:
        return [*lines, f"No recommendation: {found.doubt}."]
    chosen = found.advice.chosen
    hint = "" if tried else " (--recommend tries headrooms from 0.7 to 1)"
    head = "Recommended" if found.advice.within else "Nearest to the limit"
    lines += [f"{head}: {found.advice.reason}{hint}.", f"    heuristic: {chosen.name}"]
    lines += [f"    capacity: {given(found, capacity)}", f"    headroom: {chosen.headroom:g}"]
    others = [name for name in found.means if not contender(name).ours]
    if others:
        lines.append(f"Not to be set in Trimtab, so not considered: {', '.join(others)}.")
    return lines


def columns(found: Findings) -> tuple[tuple[str, str, int], ...]:
    """Return the columns of what is felt; few consumer-hours have more decimals."""
    least = min(s.consumer_hours for s in found.means.values())
    return tuple((t, f, decimals(least) if f == "consumer_hours" else d) for t, f, d in FELT)


def _oversized(found: Findings) -> list[str]:
    over, capacity = found.oversized, found.setup.capacity
    if not over.count:
        return []
    who = "1 partition writes" if over.count == 1 else f"{over.count} partitions write"
    said = (
        f"{who} more than one consumer sustains (up to "
        f"{over.peak / capacity:.1f} times as much): no placement cures that. Split their keys or "
        f"the partitions, or give a consumer {format_rate(over.peak)}."
    )
    return [said]


def given(found: Findings, capacity: str | None) -> str:
    """Return the capacity of a consumer as it was given."""
    return capacity or format_rate(found.setup.capacity)


def cell(value: float | None, decimals: int) -> str:
    """Return a figure for a table; a dash where there is none."""
    return NONE if value is None else f"{value:.{decimals}f}"


def _table(found: Findings, shown: tuple[tuple[str, str, int], ...]) -> Table:
    table = Table()
    table.add_column("heuristic", no_wrap=True)
    for title, _, _ in shown:
        table.add_column(title, justify="right", overflow="fold")
    for name, summary in found.means.items():
        figures = summary.figures()
        table.add_row(name, *(cell(figures[field], digits) for _, field, digits in shown))
    return table


def _duels(found: Findings) -> Table:
    streams = len(found.streams)
    table = Table("heuristic", "against")
    for title in ("R ÷ its R", "CBS no higher in", "better in"):
        table.add_column(title, justify="right")
    for d in found.duels:
        counts = (NONE if n is None else f"{n} of {streams}" for n in (d.cbs_no_higher, d.better))
        table.add_row(d.name, d.against, cell(d.r_ratio, 3), *counts)
    return table


def _rounded(summary: Summary) -> dict[str, float | None]:
    return {
        name: None if value is None else round(value, DIGITS)
        for name, value in summary.figures().items()
    }


def _result(found: Findings) -> dict[str, Any]:
    advised = found.advice and found.advice.chosen
    return {
        "stream": found.title,
        "streams": len(found.streams),
        "heuristics": {name: _rounded(s) for name, s in found.means.items()},
        "against": [
            {
                "heuristic": d.name,
                "against": d.against,
                "r_ratio": None if d.r_ratio is None else round(d.r_ratio, DIGITS),
                "cbs_no_higher": d.cbs_no_higher,
                "better": d.better,
            }
            for d in found.duels
        ],
        "recommended": advised
        and {"heuristic": advised.name, "headroom": advised.headroom, **_rounded(advised.summary)},
    }


def _body(found: Findings, capacity: str | None) -> dict[str, Any]:
    body = _result(found)
    several = len(found.streams) > 1
    for name, figures in body["heuristics"].items():
        lists = [_lists(runs[name]) for runs in found.runs]
        more = {"streams": lists} if several else lists[0]
        body["heuristics"][name] = {**more, "summary": figures}
    body["capacity"] = given(found, capacity)
    body["advice"] = advice(found, capacity, tried=True)
    return body


def _lists(run: Run) -> dict[str, list[Any]]:
    """Return what happened tick by tick."""
    return {
        "consumers": run.consumers.tolist(),
        "rscore": run.r_score.tolist(),
        "moved": run.moved.tolist(),
        "late_bytes": run.late.tolist(),
        "lag_seconds": run.mean_lag.tolist(),
    }
