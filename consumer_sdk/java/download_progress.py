"""How far a download of jars is, counted from what Ivy says."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class DownloadCounter:
    """Counts jars found and jars fetched, and tells `report` of every change."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self.found = 0
        self.fetched = 0
        self._report = report
        self._rest = ""

    def parse_output(self, text: str) -> None:
        """Take the next piece of Ivy's output; lines may be torn anywhere."""
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
) -> Generator[DownloadCounter, None, None]:
    """Yield a tally shown by `progress`, else as a bar on a terminal, else as one line."""
    console = Console(stderr=True)
    if progress is not None:
        hear = progress
        yield DownloadCounter(
            lambda found, fetched: hear(f"{name}: {_format_counts(found, fetched)}")
        )
    elif console.is_terminal:
        with _show_progress_bar(console, name) as report:
            yield DownloadCounter(report)
    else:
        console.print(f"trimtab: fetching the jars of {name} into {folder} (once)", soft_wrap=True)
        yield DownloadCounter(lambda _found, _fetched: None)


@contextmanager
def _show_progress_bar(
    console: Console, name: str
) -> Generator[Callable[[int, int], None], None, None]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"fetching the jars of {name} (once)", total=None)

        def report(found: int, fetched: int) -> None:
            words = f"fetching the jars of {name} (once): {_format_counts(found, fetched)}"
            # looking up takes most of the time, so a jar that is found counts as half
            bar.update(
                task, description=words, completed=found + fetched, total=max(2 * found, 100)
            )

        yield report


def _format_counts(found: int, fetched: int) -> str:
    return f"{fetched} of {found} fetched" if fetched else f"{found} found"
