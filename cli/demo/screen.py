"""Output of the demo: a live view on a terminal, plain lines elsewhere."""

from typing import Final, Self

from rich.live import Live

from trimtab.cli.demo.scenario import DemoScenario
from trimtab.cli.demo.view import DemoHistory, format_line, render_frame
from trimtab.cli.plain_console import PlainConsole

PLAIN_LINE_INTERVAL_S: Final = 5.0


class DemoScreen:
    """Displays the demo for the length of a `with` block."""

    def __init__(self, scenario: DemoScenario, history: DemoHistory) -> None:
        self.console = PlainConsole()
        self._scenario = scenario
        self._history = history
        self._live: Live | None = None
        self._printed_events = 0
        self._next_line_at = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Keep the last view; further output is printed below it."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def print_line(self, text: str) -> None:
        """Print a line, above the live view."""
        self.console.print(text, soft_wrap=True)  # whole lines: others parse them

    def refresh(self) -> None:
        """Update the display."""
        if self._live is not None:
            self._live.update(render_frame(self._history, self._scenario, self.console.width))
            return
        for at, kind, text in self._history.events[self._printed_events :]:
            self.print_line(f"[{at:4.0f} s]   {kind}: {text}")
        self._printed_events = len(self._history.events)
        # the time starts again with the load: a line is due then, too
        now = self._history.snapshots[-1].at
        if now < self._next_line_at - PLAIN_LINE_INTERVAL_S or now >= self._next_line_at:
            self.print_line(format_line(self._history))
            self._next_line_at = now + PLAIN_LINE_INTERVAL_S
