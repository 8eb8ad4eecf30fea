"""`trimtab tables compact` and `expire`: small files into large ones, old versions away."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trimtab.cli.lake_session import (
    INGEST_CONFIG_OPTION,
    WAREHOUSE_OPTION,
    load_lake_settings,
    open_lake_session,
    select_tables,
)
from trimtab.cli.output_formats import print_table

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.retry import RetryBackoff

T = TypeVar("T")

TABLES_ARGUMENT = Annotated[
    list[str] | None,
    typer.Argument(help="Tables, like lake.orders; default: all that Trimtab writes."),
]


def compact(
    tables: TABLES_ARGUMENT = None,
    *,
    config: INGEST_CONFIG_OPTION = None,
    warehouse: WAREHOUSE_OPTION = None,
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

    whole = load_lake_settings(config, warehouse)
    target = None if target_size is None else parse_bytes(target_size, "--target-size")
    with open_lake_session(whole) as lake:
        names, keeper = _select_written_tables(lake, tables), _create_maintenance(lake)
        if dry_run:
            small, code = _run_for_each_table(
                names, lambda name: (name, keeper.small(name, target))
            )
            lines = [(name, *_format_amount(found.files, found.bytes)) for name, found in small]
            print_table(["table", "would rewrite", "size"], lines)
            raise typer.Exit(code)
        done, code = _run_for_each_table(
            names, lambda name: maintenance.compact_table(keeper, name, target, _create_backoff())
        )
    rows = [
        (d.table, *_format_amount(d.old_files, d.bytes), f"{d.new_files:,}", f"{d.lost_races:,}")
        for d in done
    ]
    print_table(["table", "rewritten", "size", "into", "races lost, tried again"], rows)
    raise typer.Exit(code)


def expire(
    tables: TABLES_ARGUMENT = None,
    *,
    config: INGEST_CONFIG_OPTION = None,
    warehouse: WAREHOUSE_OPTION = None,
    older_than: Annotated[
        str, typer.Option(help="Versions older than this may go; 1 h at least.")
    ] = "7 d",
    min_versions: Annotated[
        int | None,
        typer.Option(min=1, help="Keep at least this many of the newest versions (Iceberg)."),
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

        trimtab tables expire lake.orders --config ingest.yaml --older-than "1 d" --min-versions 10
    """
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.common.units import parse_seconds  # noqa: PLC0415 - keeps --help fast
    from trimtab.consumer_sdk.lake import maintenance  # noqa: PLC0415 - pyspark is slow to load

    ages = maintenance.ExpiryPolicy(
        parse_seconds(older_than, "--older-than"),
        parse_seconds(orphans_older_than, "--orphans-older-than"),
        min_versions,
    )
    ages.check_ages()
    with open_lake_session(load_lake_settings(config, warehouse)) as lake:
        keeper, now = _create_maintenance(lake), SystemClock().wall()
        names = _select_written_tables(lake, tables)
        done, code = _run_for_each_table(
            names, lambda name: maintenance.expire_table(keeper, name, ages, now, _create_backoff())
        )
    rows = [
        (
            d.table,
            f"{d.versions:,}",
            f"{d.files:,}",
            "among them" if d.orphans is None else f"{d.orphans:,}",
        )
        for d in done
    ]
    print_table(["table", "versions expired", "files deleted", "orphans deleted"], rows)
    raise typer.Exit(code)


def _run_for_each_table(names: Sequence[str], work: Callable[[str], T]) -> tuple[list[T], int]:
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


def _select_written_tables(lake: Any, names: list[str] | None) -> list[str]:
    from trimtab.consumer_sdk.lake.inventory import list_written_tables  # noqa: PLC0415 - pyspark is slow

    return select_tables(lake, names) if names else list_written_tables(lake)


def _create_maintenance(lake: Any) -> Any:
    from trimtab.consumer_sdk.lake.maintenance_factory import create_maintenance  # noqa: PLC0415 - pyspark is slow to load

    return create_maintenance(lake)


def _create_backoff() -> "RetryBackoff":
    import random  # noqa: PLC0415 - keeps --help fast

    from trimtab.consumer_sdk.lake.retry import RetryBackoff  # noqa: PLC0415 - keeps --help fast

    return RetryBackoff(random.Random())  # noqa: S311 - jitter


def _format_amount(files: int, size: int) -> tuple[str, str]:
    from trimtab.common.units import format_bytes  # noqa: PLC0415 - keeps --help fast

    return f"{files:,} files", format_bytes(size)
