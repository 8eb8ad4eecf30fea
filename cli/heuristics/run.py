"""`trimtab heuristics`: the names that `trimtab.heuristic` and `--heuristic` take."""

from typing import Annotated

import typer


def heuristics(
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say what each one does, and its source.")
    ] = False,
) -> None:
    """List the heuristics, one name a line.

    For example:

        trimtab heuristics

        trimtab heuristics --verbose
    """
    from trimtab.assignor.heuristics.registry import names  # noqa: PLC0415 - numpy is slow to load

    if verbose:
        _table(names())
    else:
        typer.echo("\n".join(names()))


def _table(known: tuple[str, ...]) -> None:
    """Print what there is to say of each; one that cannot be loaded says so in its own row."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415 - keeps --help fast

    table = Table("name", "what it does", "presets", "counts", "settles", "source")
    for name in known:
        table.add_row(name, *_row(name))
    console = Console()
    console.print(table)
    console.print(
        "presets: chosen as name:preset, with settings as name:preset:setting=0.5; "
        "counts: decides how many consumers; "
        "settles: moves nothing when nothing changed"
    )


def _row(name: str) -> tuple[str, ...]:
    from trimtab.assignor.heuristics.registry import get  # noqa: PLC0415 - numpy is slow to load
    from trimtab.common.errors import TrimtabError  # noqa: PLC0415 - keeps --help fast

    try:
        entry = get(name)
    except TrimtabError as error:
        return (str(error),)
    number = ["or a number"] if entry.tuned else []
    settings = [f"{name}={default:g}" for name, default in entry.settings.items()]
    return (
        entry.summary,
        ", ".join([*entry.presets, *number, *settings]),
        "yes" if entry.counts else "no",
        "yes" if entry.settles else "no",
        entry.source,
    )
