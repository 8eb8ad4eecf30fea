"""Renders the demo as a terminal view or as plain lines. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from trimtab.assignor.model import TopicPartition
from trimtab.cli.demo.group_watcher import DemoSnapshot, ObservedNumbers
from trimtab.cli.demo.scenario import DEMO_CONSUMER_CAPACITY, TOPIC_SHARES, DemoScenario
from trimtab.cli.plain_console import plain_text
from trimtab.common.units import format_bytes, format_count, format_rate

TOPIC_COLOURS: Final = (  # two shades alternate, so that neighbouring partitions differ
    ("dodger_blue2", "deep_sky_blue3"),
    ("magenta3", "orchid"),
    ("green4", "dark_sea_green4"),
    ("dark_goldenrod", "gold3"),
)
SPARK_CHARACTERS: Final = "▁▂▃▄▅▆▇█"
SPARK_WIDTH: Final = 48
MAX_EVENTS_SHOWN: Final = 7


@dataclass(slots=True)
class DemoHistory:
    """Snapshots and events (seconds, kind, text) so far."""

    snapshots: list[DemoSnapshot] = field(default_factory=list[DemoSnapshot])
    events: list[tuple[float, str, str]] = field(default_factory=list[tuple[float, str, str]])
    phase: str = ""

    def add_event(self, at: float, kind: str, text: str) -> None:
        """Record an event."""
        self.events.append((at, kind, text))


def render_frame(history: DemoHistory, scenario: DemoScenario, width: int) -> RenderableType:
    """Render the last snapshot for a terminal of `width` columns."""
    snapshot = history.snapshots[-1] if history.snapshots else DemoSnapshot(0.0)
    parts = {
        "consumers": _render_consumers(snapshot, scenario, max(20, width - 40)),
        "load": _render_load(history, snapshot),
        "decisions and events": _render_events(history),
    }
    panels = [Panel(part, title=title, title_align="left") for title, part in parts.items()]
    return Group(_render_headline(history, scenario, snapshot), *panels)


def format_line(history: DemoHistory) -> str:
    """Format the last snapshot as one line."""
    snapshot = history.snapshots[-1]
    numbers = snapshot.numbers
    readers = format_count(snapshot.reader_count, "consumer reads", "consumers read")
    starting = _count_starting(snapshot)
    starts = f", {format_count(starting, 'starts', 'start')} Spark" if starting else ""
    return (
        f"[{snapshot.at:4.0f} s] {readers}{starts}, "
        f"{_describe_replicas(numbers)}; "
        f"writing {format_rate(numbers.write_rate)}, "
        f"backlog {format_bytes(numbers.backlog_bytes)}, "
        f"{format_count(snapshot.handovers, 'handover')}"
    )


def render_consumer_bar(
    owned: Sequence[TopicPartition], rates: Sequence[float], scenario: DemoScenario, width: int
) -> Text:
    """Render a consumer as a bar: `width` columns are its capacity, each partition takes its rate."""
    # running sums are rounded, not single rates: the bar's length is right to half a column
    ends = [round(total / DEMO_CONSUMER_CAPACITY * width) for total in accumulate(rates)]
    text = Text(no_wrap=True, overflow="crop")
    for where, start, end in zip(owned, [0, *ends], ends, strict=False):
        shades = TOPIC_COLOURS[scenario.topics.index(where.topic)]
        label = str(where.partition) if end > start else ""
        text.append(label.ljust(end - start), style=f"bold white on {shades[where.partition % 2]}")
    text.truncate(width)
    text.append("·" * max(0, width - (ends[-1] if ends else 0)), style="dim")
    return text


def format_sparkline(values: Sequence[float]) -> str:
    """Render values as a sparkline scaled to the maximum."""
    top = max(values, default=0.0) or 1.0
    last = len(SPARK_CHARACTERS) - 1
    return "".join(SPARK_CHARACTERS[min(last, int(v / top * (last + 1)))] for v in values)


def _render_headline(history: DemoHistory, scenario: DemoScenario, snapshot: DemoSnapshot) -> Text:
    text = Text(" trimtab demo ", style="bold reverse")
    text.append(f"  {snapshot.at:3.0f} of {scenario.duration_s:.0f} s  ", style="not reverse")
    text.append(history.phase, style="italic not reverse")
    for i, topic in enumerate(TOPIC_SHARES):
        text.append(f"  {topic} ", style="not reverse")
        text.append("  ", style=f"on {TOPIC_COLOURS[i][0]} not reverse")
    return text


def _render_consumers(snapshot: DemoSnapshot, scenario: DemoScenario, width: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for name, owned in snapshot.owned.items():
        rates = [snapshot.write_rates.get(p, 0.0) for p in owned]
        bar = render_consumer_bar(owned, rates, scenario, width)
        fill = sum(rates) / DEMO_CONSUMER_CAPACITY
        table.add_row(name, bar, f"{fill:4.0%}", _render_state(name, snapshot))
    for _ in range(_count_starting(snapshot)):
        table.add_row(Text("…", style="dim"), Text("its Spark session starts", style="dim"), "", "")
    return table


def _count_starting(snapshot: DemoSnapshot) -> int:
    """Count workers that run and own nothing yet; draining ones are no longer counted as running."""
    return max(0, (snapshot.numbers.running_replicas or 0) + len(snapshot.draining) - len(snapshot.owned))


def _render_state(name: str, snapshot: DemoSnapshot) -> Text:
    if name in snapshot.draining:
        return Text("draining", style="yellow")
    count = len(snapshot.owned[name])
    return Text(format_count(count, "partition"), style="dim")


def _render_load(history: DemoHistory, snapshot: DemoSnapshot) -> RenderableType:
    numbers = snapshot.numbers
    table = Table.grid(padding=(0, 1))
    table.add_row("writing", format_rate(numbers.write_rate), _render_history(history, "write_rate"))
    table.add_row("backlog", format_bytes(numbers.backlog_bytes), _render_history(history, "backlog_bytes"))
    table.add_row("replicas", _describe_replicas(numbers), _render_history(history, "running_replicas"))
    mean = snapshot.handover_seconds / snapshot.handovers if snapshot.handovers else 0.0
    text = f"{snapshot.handovers}, {1000 * mean:.0f} ms in the mean" if snapshot.handovers else "none"
    table.add_row("handovers", text, "")
    return table


def _describe_replicas(numbers: ObservedNumbers) -> str:
    """Return "6 run, 1 desired: 5 to stop"; else two different numbers look like an error."""
    running, desired = numbers.running_replicas, numbers.desired_replicas
    if running is None and desired is None:
        return "the sidecar starts"
    counts = f"{format_count(running)} run, {format_count(desired)} desired"
    if running is None or desired is None or running == desired:
        return counts
    change = f"{running - desired} to stop" if running > desired else f"{desired - running} to start"
    return f"{counts}: {change}"


def _render_history(history: DemoHistory, name: str) -> Text:
    values = [getattr(snapshot.numbers, name) or 0.0 for snapshot in history.snapshots]
    step = max(1, len(values) // SPARK_WIDTH + 1)
    return Text(format_sparkline(values[::step]), style="cyan")


def _render_events(history: DemoHistory) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    # sorted: a decision is fetched a little after its time, so events arrive out of order
    for at, kind, text in sorted(history.events)[-MAX_EVENTS_SHOWN:]:
        style = "bold red" if kind == "killed" else "bold"
        table.add_row(Text(f"{at:4.0f} s", style="dim"), Text(kind, style=style), plain_text(text))
    return table
