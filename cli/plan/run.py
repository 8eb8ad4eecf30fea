"""`trimtab plan`: what each heuristic would do with a live group now; it changes nothing."""

import json
import math
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from trimtab.cli import output_formats
from trimtab.cli.plan import options
from trimtab.cli.sidecar.run import pairs, require_group
from trimtab.cli.simulate.run import split
from trimtab.common.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trimtab.assignor.analysis.certificate import Certificate
    from trimtab.sidecar.diagnostics.what_if import Row, Survey
    from trimtab.sidecar.settings.settings import Settings

SHOWN: Final = 3  # reasons of a heuristic
WIDE: Final = 110  # columns in which more than the usual figures leave room for reasons
TIME_LIMIT: Final = "10 s"


@dataclass(frozen=True, slots=True)
class _Certified:
    """Certificates by heuristic, what they weighed moves by, and how long it took."""

    by_name: "Mapping[str, Certificate]"
    moves_cost: float
    seconds: float


def plan(  # noqa: PLR0913 - typer: one parameter an option
    more: options.More = None,
    *,
    bootstrap: options.Bootstrap = None,
    group: options.Group = None,
    topics: options.Topics = None,
    capacity: options.Capacity = None,
    headroom: options.Headroom = None,
    heuristic: options.Heuristic = None,
    seconds: options.Seconds = "10 s",
    source: options.Source = None,
    certify: options.Certify = False,
    time_limit: options.TimeLimit = None,
    move_cost: options.MoveCost = None,
    config: options.Config = None,
    kafka: options.Kafka = None,
    output: output_formats.Output = output_formats.Format.TEXT,
) -> None:
    """Show what each heuristic would do with a live group now, and change nothing.

    For example:

        trimtab plan --bootstrap localhost:9092 --group lake --capacity "2.3 MB/s"

        trimtab plan --bootstrap localhost:9092 --group lake --heuristic mbf mwf --format json

        trimtab plan --bootstrap localhost:9092 --group lake --certify --time-limit 5s
    """
    from trimtab.sidecar.diagnostics.what_if import rows  # noqa: PLC0415 - numpy is slow to load

    wanted = _names([*(heuristic or ()), *(more or ())])
    _check(wanted, certify=certify, time_limit=time_limit, move_cost=move_cost)
    limit = _limit(time_limit or TIME_LIMIT) if certify else 0.0
    require_group(config, bootstrap, group)
    flags: dict[str, Any] = {
        "bootstrap": bootstrap,
        "group": group,
        "topics": topics,
        "headroom": headroom,
        "source": source,
        "move_cost": move_cost,
        "kafka": pairs("--kafka", kafka) or None,
    }
    settings, known = _settings(config, flags, capacity, seconds)
    found = _survey(settings, capacity_known=known)
    settings = _with_plan(settings, found) if not known else settings
    made = rows(found, _tuned(settings, wanted), settings.policy.placement, SHOWN)
    certified = _certified(found, settings, made, limit) if certify else None
    if output is output_formats.Format.JSON:
        typer.echo(json.dumps(_body(found, settings, made, certified), indent=2))
    else:
        _print(found, settings, made, certified)


def _names(given: "Sequence[str]") -> tuple[str, ...]:
    """Return whom to ask, each once; all that can be where nobody is named.

    Raises UnknownHeuristic.
    """
    from trimtab.assignor.heuristics.registry import (  # noqa: PLC0415 - numpy is slow to load
        get,
        installed,
        names,
    )

    wanted = split(given)
    if not wanted or "all" in wanted:
        return tuple(name for name in names() if installed(get(name)))
    for name in wanted:
        get(name)
    return tuple(dict.fromkeys(wanted))


def _check(
    wanted: "Sequence[str]", *, certify: bool, time_limit: str | None, move_cost: str | None
) -> None:
    """Raise SettingError for an option that would change nothing."""
    if time_limit is not None and not certify:
        raise SettingError("--time-limit is of --certify; leave it out, or add --certify")
    if move_cost is not None and not certify and "steady" not in wanted:
        raise SettingError(
            f"--move-cost tunes steady, which is not among {', '.join(wanted)}; leave it out, or "
            "add steady"
        )


def _tuned(settings: "Settings", names: "Sequence[str]") -> list[str]:
    """Return the heuristics, with steady as it is tuned."""
    return [settings.chosen if name == "steady" else name for name in names]


def _limit(text: str) -> float:
    """Return the time limit in seconds, once it is clear that the solver is there."""
    from trimtab.common.units import parse_seconds  # noqa: PLC0415 - keeps --help fast

    import_module(
        "trimtab.assignor.analysis.certificate"
    )  # an extra; better missed before measuring
    limit = parse_seconds(text, "--time-limit")
    if limit <= 0:
        raise SettingError(f"--time-limit {text!r} must be above 0")
    return limit


def _certified(
    found: "Survey", settings: "Settings", made: "Sequence[Row]", limit: float
) -> _Certified:
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast

    from trimtab.assignor.analysis.certificate import certify_sizes, countdown  # noqa: PLC0415 - as above
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - as above
    from trimtab.sidecar.diagnostics.what_if import asked  # noqa: PLC0415 - as above

    clock = SystemClock()
    begun = clock.monotonic()
    with Console(stderr=True).status("bounding the optimum"):
        by_name = certify_sizes(
            asked(found, settings.policy.placement),
            [row.heuristic for row in made],
            moves_cost=settings.moves_cost,
            left=countdown(clock, limit),
        )
    return _Certified(by_name, settings.moves_cost, clock.monotonic() - begun)


def _settings(
    config: Path | None, flags: dict[str, Any], capacity: str | None, seconds: str
) -> tuple["Settings", bool]:
    """Return the settings, and whether they say what a consumer sustains."""
    from trimtab.common.units import parse_seconds  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.settings.settings import load, read  # noqa: PLC0415 - as above

    window = parse_seconds(seconds, "--seconds")
    if window <= 0:
        raise SettingError(f"--seconds {seconds!r} must be above 0")
    known = capacity is not None or "capacity" in read(config)
    flags = {**flags, "window": window, "interval": window / 5, "capacity": capacity}
    return load(config, flags if known else {**flags, "capacity": "1 MB/s"}), known


def _with_plan(settings: "Settings", found: "Survey") -> "Settings":
    """Return the settings with the capacity of the plan in force; the survey insists on one."""
    if found.plan is None:
        return settings
    update = {"capacity": found.plan.capacity, "headroom": found.plan.headroom}
    return settings.model_copy(update=update)


def _survey(settings: "Settings", *, capacity_known: bool) -> "Survey":
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.progress import Progress  # noqa: PLC0415 - as above

    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - as above
    from trimtab.sidecar.diagnostics.what_if import survey  # noqa: PLC0415 - as above

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("measuring write speeds", total=1.0, visible=False)
        return survey(
            settings,
            SystemClock(),
            lambda share: bar.update(task, completed=share, visible=True),
            capacity_known=capacity_known,
        )


def _body(
    found: "Survey", settings: "Settings", made: "Sequence[Row]", certified: _Certified | None
) -> dict[str, Any]:
    from trimtab.sidecar.diagnostics.what_if import oversize  # noqa: PLC0415 - as above
    from trimtab.sidecar.measurement.cross_rack import across  # noqa: PLC0415 - loaded by now

    now = across(found.group.readers, found.speeds, found.racks)
    speeds = found.speeds.values()
    heuristics: dict[str, dict[str, Any]] = {row.heuristic: asdict(row) for row in made}
    body: dict[str, Any] = {
        "group": settings.group,
        "state": found.group.state.value,
        "members": len(found.group.readers),
        "partitions": len(found.speeds),
        "unknown": sum(s.bytes_per_s is None for s in speeds),
        "bytes_per_s": sum(s.bytes_per_s or 0.0 for s in speeds),
        "backlog_bytes": sum(s.backlog_bytes or 0.0 for s in speeds),
        "capacity": settings.capacity,
        "headroom": settings.headroom,
        "speeds": found.source,
        "crossing_bytes_per_s": None if now is None else now.load,
        "notes": (
            *oversize(found, settings.policy.placement),
            *(() if now is None else now.notes),
        ),
        "epoch": None if found.plan is None else found.plan.epoch,
        "heuristics": heuristics,
    }
    if certified is not None:
        body["certify"] = {"moves_cost": certified.moves_cost, "seconds": certified.seconds}
        for name, certificate in certified.by_name.items():
            heuristics[name]["certificate"] = certificate.body()
    return body


def _print(
    found: "Survey", settings: "Settings", made: "Sequence[Row]", certified: _Certified | None
) -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415 - as above

    from trimtab.common.units import format_rate  # noqa: PLC0415 - loaded by now

    console, body = Console(), _body(found, settings, made, None)
    console.print(_heading(body), highlight=False)
    table = Table("heuristic")
    racked = body["crossing_bytes_per_s"] is not None
    optional = [
        *(["across racks"] if racked else ()),
        *(["above the optimum"] if certified else ()),
    ]
    for column in ("consumers", "moves", "R-score", "fullest", *optional):
        table.add_column(column, justify="right", no_wrap=True)
    beside = not optional or console.width >= WIDE
    if beside:
        table.add_column("first reason")
    for row in made:
        figures = [str(row.consumers), str(row.moves), f"{row.r_score:.2f}", f"{row.fill:.0%}"]
        if racked:
            figures.append(format_rate(row.crossing))
        if certified:
            figures.append(_distance(certified.by_name[row.heuristic]))
        reason = "\n".join(row.reasons[:1])
        table.add_row(row.heuristic, *figures, *([reason] if beside else []))
    console.print(table)
    below = [] if beside else [f"{row.heuristic}: {row.reasons[0]}" for row in made if row.reasons]
    for note in (*below, *body["notes"]):
        console.print(note, highlight=False)
    if certified:
        console.print(_bound(certified, settings), highlight=False)


def _heading(body: "Mapping[str, Any]") -> str:
    from trimtab.common.units import format_bytes, format_rate  # noqa: PLC0415 - as above

    crossing = body["crossing_bytes_per_s"]
    racks = "" if crossing is None else f", {format_rate(crossing)} across racks"
    return (
        f"group {body['group']} ({body['state']}): {body['members']} members, "
        f"{body['partitions']} partitions, {body['unknown']} of them unknown; "
        f"writing {format_rate(body['bytes_per_s'])}{racks}, backlog "
        f"{format_bytes(body['backlog_bytes'])} ({body['speeds']}); "
        f"{body['headroom']:.0%} of {format_rate(body['capacity'])} a consumer"
    )


def _distance(certificate: "Certificate") -> str:
    if not certificate.fits:
        return "overfull"
    gap = certificate.gap
    return "unknown" if math.isinf(gap) else f"at most {math.ceil(gap * 1000) / 10:.1f} %"


def _bound(certified: _Certified, settings: "Settings") -> str:
    """Say what all certificates have in common."""
    one = next(iter(certified.by_name.values()))
    best = "?" if math.isinf(one.best_known) else f"{one.best_known:.2f}"
    cut = "" if one.complete else "; cut off by --time-limit, more time may tighten it"
    return (
        f"optimum of consumers + {certified.moves_cost:g} x R: between {one.lower_bound:.2f} "
        f"(bound) and {best} (found), {certified.seconds:.1f} s{cut}; here R counts "
        f"{settings.headroom:.0%} of the capacity as one consumer, the column R-score all of it"
    )
