"""`trimtab tables compact` and `expire`: small files into large ones, old versions away."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trimtab.cli.lake_session import CONFIG, WAREHOUSE, chosen, opened, settings

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.retry import Pace

T = TypeVar("T")

NAMED = Annotated[
    list[str] | None,
    typer.Argument(help="Tables, like lake.orders; default: all that Trimtab writes."),
]


def compact(
    tables: NAMED = None,
    *,
    config: CONFIG = None,
    warehouse: WAREHOUSE = None,
    target_size: Annotated[
        str | None,
        typer.Option(help='Size of the new files, like "128 MB"; default: what the table says.'),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be rewritten.")
    ] = False,
) -> None:
    """Rewrite small files into large ones, through Spark; writers may go on meanwhile.

    Rows and offsets stay what they are. What a writer overtakes is tried again, ten times at most.
    The small files themselves go with `expire`, when no version that is kept needs them. For
    example:

        trimtab tables compact --config ingest.yaml --dry-run

        trimtab tables compact lake.orders --config ingest.yaml --target-size "128 MB"
    """
    from trimtab.common.units import parse_bytes  # noqa: PLC0415 - keeps --help fast
    from trimtab.consumer_sdk.lake import maintenance  # noqa: PLC0415 - pyspark is slow to load

    whole = settings(config, warehouse)
    target = None if target_size is None else parse_bytes(target_size, "--target-size")
    with opened(whole) as lake:
        names, keeper = _meant(lake, tables), _keeper(lake)
        if dry_run:
            small, code = _each(names, lambda name: (name, keeper.small(name, target)))
            lines = [(name, *_amount(found.files, found.bytes)) for name, found in small]
            _show(["table", "would rewrite", "size"], lines)
            raise typer.Exit(code)
        done, code = _each(names, lambda name: maintenance.compact(keeper, name, target, _pace()))
    rows = [
        (d.table, *_amount(d.old_files, d.bytes), f"{d.new_files:,}", f"{d.raced:,}") for d in done
    ]
    _show(["table", "rewritten", "size", "into", "races lost, tried again"], rows)
    raise typer.Exit(code)


def expire(
    tables: NAMED = None,
    *,
    config: CONFIG = None,
    warehouse: WAREHOUSE = None,
    older_than: Annotated[
        str, typer.Option(help="Versions older than this may go; 1 h at least.")
    ] = "7 d",
    keep: Annotated[
        int | None,
        typer.Option(min=1, help="Keep so many of the newest versions, however old (Iceberg)."),
    ] = None,
    orphans_older_than: Annotated[
        str,
        typer.Option(help="Files that no version ever named may go at this age; 1 d at least."),
    ] = "3 d",
) -> None:
    """Let old versions and their files go, and files that crashes have left behind.

    The offset of every partition stays, however long it has been idle. Nothing that is younger
    than the ages goes: neither what writers have staged, nor a commit that they still look for.
    For example:

        trimtab tables expire --config ingest.yaml

        trimtab tables expire lake.orders --config ingest.yaml --older-than "1 d" --keep 10
    """
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.common.units import parse_seconds  # noqa: PLC0415 - keeps --help fast
    from trimtab.consumer_sdk.lake import maintenance  # noqa: PLC0415 - pyspark is slow to load

    ages = maintenance.Ages(
        parse_seconds(older_than, "--older-than"),
        parse_seconds(orphans_older_than, "--orphans-older-than"),
        keep,
    )
    ages.check()
    with opened(settings(config, warehouse)) as lake:
        keeper, now = _keeper(lake), SystemClock().wall()
        names = _meant(lake, tables)
        done, code = _each(names, lambda name: maintenance.expire(keeper, name, ages, now, _pace()))
    rows = [
        (
            d.table,
            f"{d.versions:,}",
            f"{d.files:,}",
            "among them" if d.orphans is None else f"{d.orphans:,}",
        )
        for d in done
    ]
    _show(["table", "versions expired", "files deleted", "orphans deleted"], rows)
    raise typer.Exit(code)


def _each(names: Sequence[str], work: Callable[[str], T]) -> tuple[list[T], int]:
    """Do the work for each table; what failed is told, and is the exit code, behind the others."""
    from trimtab.common.errors import TrimtabError  # noqa: PLC0415 - its package loads numpy

    done: list[T] = []
    code = 0
    for name in names:
        try:
            done.append(work(name))
        except TrimtabError as error:
            typer.echo(f"{name}: {error}", err=True)
            code = max(code, error.exit_code)
    return done, code


def _meant(lake: Any, named: list[str] | None) -> list[str]:
    from trimtab.consumer_sdk.lake.inventory import written  # noqa: PLC0415 - pyspark is slow

    return chosen(lake, named) if named else written(lake)


def _keeper(lake: Any) -> Any:
    from trimtab.consumer_sdk.lake.maintenance_factory import keeper  # noqa: PLC0415 - pyspark is slow to load

    return keeper(lake)


def _pace() -> "Pace":
    import random  # noqa: PLC0415 - keeps --help fast

    from trimtab.consumer_sdk.lake.retry import Pace  # noqa: PLC0415 - keeps --help fast

    return Pace(random.Random())  # noqa: S311 - jitter


def _amount(files: int, size: int) -> tuple[str, str]:
    from trimtab.common.units import format_bytes  # noqa: PLC0415 - keeps --help fast

    return f"{files:,} files", format_bytes(size)


def _show(head: list[str], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415 - keeps --help fast

    shown = Table(*head)
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)
