"""Shows the progress of a JAR download, parsed from Ivy's output."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class DownloadCounter:
    """Counts JARs found and fetched, and calls `report(found, fetched)` on each change."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self.found = 0
        self.fetched = 0
        self._report = report
        self._rest = ""

    def parse_output(self, text: str) -> None:
        """Parse the next piece of Ivy's output, which may end within a line."""
        # Only complete lines are matched; the rest waits for its end.
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.startswith("\tfound "):
                self.found += 1
            elif "[SUCCESSFUL ]" in line:
                self.fetched += 1
            else:
                continue
            self._report(self.found, self.fetched)


@contextmanager
def show_download_progress(
    name: str, folder: Path, progress: Callable[[str], None] | None
) -> Generator[DownloadCounter]:
    """Yield a counter shown by `progress`, by a bar on a terminal, or by one line."""
    console = Console(stderr=True)
    if progress is not None:
        show_line = progress
        yield DownloadCounter(lambda found, fetched: show_line(f"{name}: {_format_counts(found, fetched)}"))
    elif console.is_terminal:
        with _show_progress_bar(console, name) as report:
            yield DownloadCounter(report)
    else:
        console.print(f"trimtab: downloading the JARs of {name} into {folder} (once)", soft_wrap=True)
        yield DownloadCounter(lambda _found, _fetched: None)


@contextmanager
def _show_progress_bar(console: Console, name: str) -> Generator[Callable[[int, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"downloading the JARs of {name} (once)", total=None)

        def update_bar(found: int, fetched: int) -> None:
            text = f"downloading the JARs of {name} (once): {_format_counts(found, fetched)}"
            # The lookup takes most of the time, so a JAR that is found counts as half.
            bar.update(task, description=text, completed=found + fetched, total=max(2 * found, 100))

        yield update_bar


def _format_counts(found: int, fetched: int) -> str:
    return f"{fetched} of {found} fetched" if fetched else f"{found} found"
