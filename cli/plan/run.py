"""`trimtab plan`: what each heuristic would do with a live group now; it changes nothing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import typer
from rich.progress import Progress
from rich.table import Table

from trimtab.assignor.heuristics.registry import get_heuristic, is_installed, list_heuristics
from trimtab.cli.group_settings import load_group_settings
from trimtab.cli.output_formats import PrintFormat
from trimtab.cli.plain_console import PlainConsole
from trimtab.cli.plan.options import PlanOptions
from trimtab.cli.setting_pairs import split_names
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError
from trimtab.common.units import format_bytes, format_count, format_rate, parse_seconds
from trimtab.sidecar.diagnostics.what_if import (
    GroupBaseline,
    HeuristicOutcome,
    describe_learned_capacities,
    describe_oversized_partitions,
    evaluate_heuristics,
    measure_baseline,
)
from trimtab.sidecar.model.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.settings.settings import SidecarSettings

READINGS_PER_MEASUREMENT: Final = 5
REASONS_PER_HEURISTIC: Final = 3
WIDE_CONSOLE_COLUMNS: Final = 110  # from here on reasons fit beside the figures


def plan(options: PlanOptions) -> None:
    """Evaluate the heuristics on a live group and print the results. Raises SettingError."""
    # every option is checked before the measurement, which takes a window
    heuristics = _select_heuristics([*(options.heuristic or ()), *(options.more or ())])
    _check_options(heuristics, options)
    window = parse_seconds(options.seconds, "--seconds")
    if window <= 0:
        raise SettingError(f"--seconds {options.seconds!r} must be above 0")
    settings, is_known = load_group_settings(
        options, {"window": window, "interval": window / READINGS_PER_MEASUREMENT}
    )
    baseline = _measure_baseline(settings, capacity_known=is_known)
    settings = settings if is_known else _adopt_plan_capacity(settings, baseline)
    # --move-cost is a parameter of steady
    tuned = [settings.effective_heuristic if name == "steady" else name for name in heuristics]
    policy = settings.autoscaling_policy
    outcomes = evaluate_heuristics(baseline, tuned, policy, REASONS_PER_HEURISTIC)
    if options.output is PrintFormat.JSON:
        typer.echo(json.dumps(_build_plan_body(baseline, settings, outcomes), indent=2))
    else:
        _print_outcomes(baseline, settings, outcomes)


def _select_heuristics(given: Sequence[str]) -> tuple[str, ...]:
    """Return the heuristics, each once; by default all. Raises UnknownHeuristicError."""
    names = split_names(given)
    if not names or "all" in names:  # one that needs an extra counts only if it is installed
        return tuple(name for name in list_heuristics() if is_installed(get_heuristic(name)))
    for name in names:
        get_heuristic(name)
    return tuple(dict.fromkeys(names))


def _check_options(heuristics: Sequence[str], options: PlanOptions) -> None:
    """Raise SettingError for an option without effect."""
    if "move-cost" in options.flags and "steady" not in heuristics:
        raise SettingError(
            f"--move-cost tunes steady, which is not among {', '.join(heuristics)}; leave it out, "
            "or add steady"
        )


def _adopt_plan_capacity(settings: SidecarSettings, baseline: GroupBaseline) -> SidecarSettings:
    if baseline.plan is None:
        return settings  # the measurement has failed without a capacity by then
    return replace(settings, capacity=baseline.plan.capacity, headroom=baseline.plan.headroom)


def _measure_baseline(settings: SidecarSettings, *, capacity_known: bool) -> GroupBaseline:
    console = PlainConsole(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        # visible from the first reading on: published rates need no measurement
        task = bar.add_task("measuring write rates", total=1.0, visible=False)
        return measure_baseline(
            settings,
            SystemClock(),
            lambda share: bar.update(task, completed=share, visible=True),
            capacity_known=capacity_known,
        )


def _build_plan_body(
    baseline: GroupBaseline, settings: SidecarSettings, outcomes: Sequence[HeuristicOutcome]
) -> dict[str, Any]:
    now = compute_cross_rack_traffic(baseline.group.members, baseline.write_rates, baseline.replica_racks)
    loads = baseline.write_rates.values()
    return {
        "group": settings.group,
        "state": baseline.group.state.value,
        "members": len(baseline.group.members),
        "partitions": len(baseline.write_rates),
        "unknown": sum(s.bytes_per_s is None for s in loads),
        "bytes_per_s": sum(s.bytes_per_s or 0.0 for s in loads),
        "backlog_bytes": sum(s.backlog_bytes or 0.0 for s in loads),
        "capacity": settings.capacity,
        "headroom": settings.headroom,
        "rate_source": baseline.rate_source,
        "cross_rack_bytes_per_s": None if now is None else now.load,
        "notes": (
            *describe_oversized_partitions(baseline, settings.autoscaling_policy),
            *describe_learned_capacities(baseline),
            *(() if now is None else now.notes),
        ),
        "epoch": None if baseline.plan is None else baseline.plan.epoch,
        "heuristics": {row.heuristic: asdict(row) for row in outcomes},
    }


def _print_outcomes(
    baseline: GroupBaseline, settings: SidecarSettings, outcomes: Sequence[HeuristicOutcome]
) -> None:
    console = PlainConsole()
    body = _build_plan_body(baseline, settings, outcomes)
    console.print(_format_heading(body))
    table = Table("heuristic")
    racked = body["cross_rack_bytes_per_s"] is not None
    for column in ("consumers", "moves", "R-score", "fullest", *(["across racks"] if racked else ())):
        table.add_column(column, justify="right", no_wrap=True)
    beside = console.width >= WIDE_CONSOLE_COLUMNS
    if beside:
        table.add_column("first reason")
    for row in outcomes:
        figures = [str(row.consumers), str(row.moves), f"{row.r_score:.2f}", f"{row.fill:.0%}"]
        if racked:
            figures.append(format_rate(row.cross_rack_bytes_per_s))
        reason = "\n".join(row.reasons[:1])
        table.add_row(row.heuristic, *figures, *([reason] if beside else []))
    console.print(table)
    below = [] if beside else _list_first_reasons(outcomes)
    for note in (*below, *body["notes"]):
        console.print(note)


def _list_first_reasons(outcomes: Sequence[HeuristicOutcome]) -> list[str]:
    """Return each first reason once, with the heuristics that give it."""
    by_reason = dict[str, list[str]]()
    for row in outcomes:
        for reason in row.reasons[:1]:
            why = reason.replace(f"{row.heuristic}: ", "", 1)  # of the move: the line begins with it
            by_reason.setdefault(why, []).append(row.heuristic)
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _format_heading(body: Mapping[str, Any]) -> str:
    cross_rack = body["cross_rack_bytes_per_s"]
    racks = "" if cross_rack is None else f", {format_rate(cross_rack)} across racks"
    return (
        f"group {body['group']} ({body['state']}): {format_count(body['members'], 'member')}, "
        f"{format_count(body['partitions'], 'partition')}, {body['unknown']} of them unknown; "
        f"writing {format_rate(body['bytes_per_s'])}{racks}, backlog "
        f"{format_bytes(body['backlog_bytes'])} ({body['rate_source']}); "
        f"{body['headroom']:.0%} of {format_rate(body['capacity'])} a consumer"
    )
