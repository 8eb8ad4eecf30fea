"""Where the show is seen: a live picture on a terminal, plain lines elsewhere."""

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live

from trimtab.cli.demo.scenario import Script
from trimtab.cli.demo.view import Story, frame, line

EVERY: Final = 5.0  # seconds between two plain lines


class Screen:
    """Shows a story as it grows, for the length of a `with` block."""

    def __init__(self, script: Script, story: Story) -> None:
        self.console = Console()
        self._script = script
        self._story = story
        self._live: Live | None = None
        self._told = 0  # events
        self._line_at = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the last picture standing; what follows is printed below it."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def say(self, words: str) -> None:
        """Print a line, above the live picture if there is one."""
        self.console.print(words, soft_wrap=True, highlight=False)

    def show(self) -> None:
        """Show the story as it is now."""
        if self._live is not None:
            self._live.update(frame(self._story, self._script, self.console.width))
            return
        for at, what, words in self._story.events[self._told :]:
            self.say(f"[{at:4.0f} s]   {what}: {words}")
        self._told = len(self._story.events)
        now = self._story.moments[-1].at
        if now < self._line_at - EVERY or now >= self._line_at:
            self.say(line(self._story))
            self._line_at = now + EVERY
