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
    from trimtab.assignor.heuristics.registry import list_heuristics  # noqa: PLC0415 - numpy is slow to load

    if verbose:
        _print_table(list_heuristics())
    else:
        typer.echo("\n".join(list_heuristics()))


def _print_table(names: tuple[str, ...]) -> None:
    """Print what there is to say of each; one that cannot be loaded says so in its own row."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415 - keeps --help fast

    table = Table("name", "what it does", "presets", "counts", "settles", "source")
    for name in names:
        table.add_row(name, *_describe_heuristic(name))
    console = Console()
    console.print(table)
    console.print(
        "presets: chosen as name:preset, with settings as name:preset:setting=0.5; "
        "counts: decides how many consumers; "
        "settles: moves nothing when nothing changed"
    )


def _describe_heuristic(name: str) -> tuple[str, ...]:
    from trimtab.assignor.heuristics.registry import get_heuristic  # noqa: PLC0415 - numpy is slow to load
    from trimtab.common.errors import TrimtabError  # noqa: PLC0415 - keeps --help fast

    try:
        entry = get_heuristic(name)
    except TrimtabError as error:
        return (str(error),)
    number = ["or a number"] if entry.make_tuned else []
    settings = [f"{name}={default:g}" for name, default in entry.settings.items()]
    return (
        entry.summary,
        ", ".join([*entry.presets, *number, *settings]),
        "yes" if entry.packs_by_capacity else "no",
        "yes" if entry.idempotent else "no",
        entry.source,
    )
