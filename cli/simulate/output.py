"""Findings as tables with a final RESULT line, or as JSON."""

import json
from typing import Any, Final

import typer
from rich.table import Table

from trimtab.assignor.analysis.simulation import RunSummary, SimulationRun, parse_contender
from trimtab.assignor.analysis.simulation.recommendation import consumer_hour_decimals
from trimtab.cli.output_formats import PrintFormat
from trimtab.cli.plain_console import PlainConsole
from trimtab.cli.simulate.findings import SimulationFindings
from trimtab.cli.terminal import print_line, print_lines
from trimtab.common.units import format_count, format_rate

PACKING_COLUMNS: Final = (
    ("CBS %", "cbs_percent", 2),
    ("mean R", "mean_r", 1),
    ("moves a tick", "moves_per_tick", 1),
    ("mean consumers", "mean_consumers", 1),
    ("over L2 %", "over_l2_percent", 2),
)
FILL_COLUMNS: Final = (
    ("fullest", "max_fullest", 2),
    ("ticks over headroom", "over_headroom", 1),
    ("ticks over capacity", "over_capacity", 1),
)
OPERATOR_COLUMNS: Final = (
    ("consumer hours", "consumer_hours", 1),
    ("late %", "late_percent", 2),
    ("overload %", "overload_percent", 1),
    ("moves /h", "moves_per_hour", 0),
    ("rebalances /h", "rebalances_per_hour", 0),
    ("starts + stops /h", "starts_stops_per_hour", 0),
)
NO_VALUE: Final = "\N{EN DASH}"
PIPED_TABLE_WIDTH: Final = 100  # rich takes 80 in a pipe, where headings fold
JSON_DECIMALS: Final = 4


def print_findings(
    findings: SimulationFindings, form: PrintFormat, capacity: str | None, *, headrooms_tried: bool
) -> None:
    """Print the findings; `capacity` is the option's text."""
    if form is PrintFormat.JSON:
        typer.echo(json.dumps(_build_json(findings, capacity)))
        return
    console = PlainConsole()
    if not console.is_terminal:
        console = PlainConsole(width=max(console.width, PIPED_TABLE_WIDTH))
    print_lines((*describe_model(findings).split("\n"), *findings.notes))
    for shown in (PACKING_COLUMNS, operator_columns(findings), FILL_COLUMNS):
        console.print(_summary_table(findings, shown))
    if any(s.cbs_percent is None for s in findings.mean_summaries.values()):
        console.print(f"{NO_VALUE}: does not pack by capacity, so that its bins cannot be compared")
    for line in format_recommendation(findings, capacity, headrooms_tried=headrooms_tried):
        print_line(line)
    print_line(f"RESULT {json.dumps(_build_result(findings))}")


def describe_model(findings: SimulationFindings) -> str:
    """Return what was simulated."""
    if findings.live:
        return "The closed loop: the sidecar decides, the group's leader carries it out."
    return "The paper's replay: each tick is decided anew and done at once; --live runs the closed loop."


def format_recommendation(
    findings: SimulationFindings, capacity: str | None, *, headrooms_tried: bool
) -> list[str]:
    """Return the recommendation as lines: reason, then settings."""
    lines = _format_oversized(findings)
    if findings.recommendation is None:
        return [*lines, f"No recommendation: {findings.no_recommendation_reason}."]
    chosen = findings.recommendation.chosen
    hint = "" if headrooms_tried else " (--recommend tries headrooms from 0.7 to 1)"
    head = "Recommended" if findings.recommendation.within_limit else "Nearest to the limit"
    lines += [f"{head}: {findings.recommendation.reason}{hint}.", f"    heuristic: {chosen.name}"]
    lines += [f"    capacity: {format_capacity(findings, capacity)}", f"    headroom: {chosen.headroom:g}"]
    lines += [f"    {setting}" for setting in findings.settings]
    others = [name for name in findings.mean_summaries if not parse_contender(name).is_trimtab_setting]
    if others:
        lines.append(f"Not to be set in Trimtab, so not considered: {', '.join(others)}.")
    return lines


def operator_columns(findings: SimulationFindings) -> tuple[tuple[str, str, int], ...]:
    """Return the columns of consumer-hours, lag and lateness."""
    # short streams: 0.04 consumer-hours must not read 0.0
    least = min(s.consumer_hours for s in findings.mean_summaries.values())
    hours = consumer_hour_decimals(least)
    return tuple((t, f, hours if f == "consumer_hours" else d) for t, f, d in OPERATOR_COLUMNS)


def _format_oversized(findings: SimulationFindings) -> list[str]:
    over = findings.oversized
    capacity = findings.setup.capacity
    if not over.count:
        return []
    subject = format_count(over.count, "partition writes", "partitions write")
    text = (
        f"{subject} more than one consumer sustains (up to "
        f"{over.peak / capacity:.1f} times as much): no placement cures that. Split their keys or "
        f"the partitions, or give a consumer {format_rate(over.peak)}."
    )
    return [text]


def format_capacity(findings: SimulationFindings, capacity: str | None) -> str:
    """Return the capacity of a consumer, as the option has it."""
    return capacity or format_rate(findings.setup.capacity)


def format_figure(value: float | None, decimals: int) -> str:
    """Format a number for a table; a dash for None."""
    return NO_VALUE if value is None else f"{value:.{decimals}f}"


def _summary_table(findings: SimulationFindings, shown: tuple[tuple[str, str, int], ...]) -> Table:
    table = Table()
    table.add_column("heuristic", no_wrap=True)
    for title, _, _ in shown:
        table.add_column(title, justify="right", overflow="fold")
    for name, summary in findings.mean_summaries.items():
        figures = summary.to_dict()
        table.add_row(name, *(format_figure(figures[field], digits) for _, field, digits in shown))
    return table


def _round_figures(summary: RunSummary) -> dict[str, float | None]:
    return {
        name: None if value is None else round(value, JSON_DECIMALS)
        for name, value in summary.to_dict().items()
    }


def _build_result(findings: SimulationFindings) -> dict[str, Any]:
    advised = findings.recommendation and findings.recommendation.chosen
    return {
        "stream": findings.title,
        "live": findings.live,
        "model": "live" if findings.live else "paper",
        "streams": len(findings.streams),
        "notes": list(findings.notes),
        "heuristics": {name: _round_figures(s) for name, s in findings.mean_summaries.items()},
        "recommended": advised
        and {"heuristic": advised.name, "headroom": advised.headroom, **_round_figures(advised.summary)},
    }


def _build_json(findings: SimulationFindings, capacity: str | None) -> dict[str, Any]:
    body = _build_result(findings)
    several = len(findings.streams) > 1
    for name, figures in body["heuristics"].items():
        lists = [_tick_series(runs[name]) for runs in findings.runs]
        more = {"streams": lists} if several else lists[0]
        body["heuristics"][name] = {**more, "summary": figures}
    body["capacity"] = format_capacity(findings, capacity)
    body["advice"] = format_recommendation(findings, capacity, headrooms_tried=True)
    return body


def _tick_series(run: SimulationRun) -> dict[str, list[Any]]:
    return {
        "consumers": run.consumers.tolist(),
        "rscore": run.r_score.tolist(),
        "moved": run.moved.tolist(),
        "fullest": run.fullest.tolist(),
        "decided": run.decided.tolist(),
        "feasible": run.feasible.tolist(),
        "avoidable": run.avoidable.tolist(),
        "late_bytes": run.late.tolist(),
        "lag_seconds": run.mean_lag.tolist(),
    }
