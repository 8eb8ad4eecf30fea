"""Report as one self-contained HTML file with light and dark mode."""

from html import escape
from pathlib import Path
from typing import Final

from trimtab.assignor.analysis.simulation import parse_contender
from trimtab.cli.simulate import figures
from trimtab.cli.simulate.findings import SimulationFindings
from trimtab.cli.simulate.output import (
    FILL_COLUMNS,
    PACKING_COLUMNS,
    describe_model,
    format_capacity,
    format_figure,
    format_recommendation,
    operator_columns,
)
from trimtab.common.errors import SettingError
from trimtab.common.units import format_count

CSS: Final = """
:root { color-scheme: light dark; }
body { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem; font: 16px/1.55 system-ui, sans-serif; }
p.lead, figcaption, dd { opacity: .75; } dd { margin: 0; } dt { font-weight: 600; }
section.advice { border-left: 4px solid #3584e4; padding: .3rem 1.2rem; }
pre, div.wide { overflow-x: auto; } figure { margin: 0; } figure svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .65rem; text-align: right; border-bottom: 1px solid #808a9a66; }
th:first-child { text-align: left; white-space: nowrap; } tr.chosen th { color: #3584e4; }
"""

TERMS: Final = {
    "CBS": "Consumers beyond the best heuristic's, averaged over the ticks. Over L2: consumers "
    "beyond a bound that no packing can undercut.",
    "R": "Write rate of the partitions that change their owner at a tick ÷ capacity of a consumer: "
    "consumers' worth of reading that stops.",
    "Late traffic": "Fraction of the bytes that arrive while the oldest unread byte of their "
    "partition has waited longer than the limit.",
    "Overload": "Fraction of the consumers that receive more than they sustain, at the tick after "
    "the decision.",
    "Fullest": "Highest load of a consumer ÷ its capacity, right after a decision. Ticks over headroom: "
    "those whose decision left a consumer of several partitions above it, although another placement "
    "was found. Ticks over capacity: all with a consumer above its own.",
    "keda, range": "Kafka users' other choices: a lag-threshold autoscaler (KEDA with the HPA) and "
    "Kafka's default assignor. Drawn as crosses.",
}


def write_report(file: Path, findings: SimulationFindings, capacity: str | None) -> None:
    """Write the report. Raises SettingError, and ModuleNotFoundError without matplotlib."""
    text = render_page(findings, capacity)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError(f"--html: {file} cannot be written: {error.strerror}") from error


def render_page(findings: SimulationFindings, capacity: str | None) -> str:
    """Return the report as HTML."""
    title = f"Trimtab simulation: {findings.title}"
    shown = figures.select_highlights(findings)
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_describe_setup(findings, capacity))}</p>',
        _render_recommendation(findings, capacity),
        *_render_plots(findings, shown),
        "<h2>All figures</h2>",
        _render_table(findings),
        "<h2>Meaning of the figures</h2>",
        "<dl>" + "".join(f"<dt>{t}</dt><dd>{escape(d)}</dd>" for t, d in TERMS.items()) + "</dl>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _describe_setup(findings: SimulationFindings, capacity: str | None) -> str:
    setup = findings.setup
    first = findings.streams[0]
    ticks, partitions = first.rates.shape
    several = f"{len(findings.streams)} streams of " if len(findings.streams) > 1 else ""
    return (
        f"{describe_model(findings)} "
        f"{several}{format_count(partitions, 'partition')} and {format_count(ticks, 'tick')} of "
        f"{setup.tick:g} s; a consumer sustains {format_capacity(findings, capacity)} and is filled to "
        f"{setup.headroom:.0%}; a moved partition pauses {setup.pause:g} s; a byte is late if the "
        f"oldest unread one has waited {setup.late:g} s. {' '.join(findings.notes)}"
    ).rstrip()


def _render_recommendation(findings: SimulationFindings, capacity: str | None) -> str:
    lines = format_recommendation(
        findings, capacity, headrooms_tried=len({c.headroom for c in findings.candidates}) > 1
    )
    paragraphs = "".join(f"<p>{escape(line)}</p>" for line in lines if not line.startswith(" "))
    settings = "\n".join(line.strip() for line in lines if line.startswith(" "))
    pre = f"<pre>{escape(settings)}</pre>" if settings else ""
    return f'<section class="advice" aria-label="Recommendation">{paragraphs}{pre}</section>'


def _render_plots(findings: SimulationFindings, shown: list[str]) -> list[str]:
    least = min(findings.mean_summaries.items(), key=lambda item: item[1].late_percent)
    most = max(findings.mean_summaries.items(), key=lambda item: item[1].late_percent)
    spread = (
        f"Late traffic ranges from {least[1].late_percent:.2f} % ({least[0]}) to "
        f"{most[1].late_percent:.2f} % ({most[0]})"
    )
    first = " (first stream)" if len(findings.streams) > 1 else ""
    return [
        _render_figure(
            "Cost of fewer moves and of less late traffic",
            figures.draw_trade_off(findings, shown),
            "Left: fewer consumers move more load. Right: less late traffic costs consumer-hours. "
            "The line is the Pareto front; dotted: the limit.",
            f"Two scatter plots of every heuristic. {spread}.",
        ),
        _render_figure(
            "Late traffic", figures.draw_late_traffic(findings, shown), f"{spread}.", f"Bar chart. {spread}."
        ),
        _render_figure(
            f"Over time{first}",
            figures.draw_timeline(findings, shown),
            f"Dotted: a lag of {findings.setup.late:g} s.",
            f"Three time lines. {figures.describe_timeline(findings, shown)}.",
        ),
    ]


def _render_figure(title: str, svg: str, caption: str, alt: str) -> str:
    # screen readers take the label for the whole figure
    labelled = svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)
    return f"<h2>{escape(title)}</h2>\n<figure>{labelled}<figcaption>{escape(caption)}</figcaption></figure>"


def _render_table(findings: SimulationFindings) -> str:
    shown = (*PACKING_COLUMNS, *operator_columns(findings), *FILL_COLUMNS)
    chosen = findings.recommendation.chosen.name if findings.recommendation else None
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title, _, _ in shown)
    rows: list[str] = []
    for name, summary in findings.mean_summaries.items():
        values = summary.to_dict()
        cells = "".join(f"<td>{format_figure(values[field], digits)}</td>" for _, field, digits in shown)
        mark = ' class="chosen"' if name == chosen else ""
        label = escape(name) + ("" if parse_contender(name).is_trimtab_setting else " ✕")
        rows.append(f'<tr{mark}><th scope="row">{label}</th>{cells}</tr>')
    return (
        '<div class="wide" tabindex="0"><table><thead><tr><th scope="col">heuristic</th>'
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
