"""`trimtab tables compact` and `expire`."""

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
    list[str] | None, typer.Argument(help="Tables, like lake.orders; default: all written by Trimtab.")
]


def compact(
    tables: TABLES_ARGUMENT = None,
    *,
    config: INGEST_CONFIG_OPTION = None,
    warehouse: WAREHOUSE_OPTION = None,
    target_size: Annotated[
        str | None, typer.Option(help='Size of new files, like "128 MB"; default: the table\'s setting.')
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the files to rewrite without rewriting them.")
    ] = False,
) -> None:
    """Rewrite small files into large ones with Spark; writers may run meanwhile.

    Rows and offsets stay unchanged. A lost race against a writer is retried, ten times at most.
    `expire` deletes the small files once no kept version references them. For example:

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
                names, lambda name: (name, keeper.plan_compaction(name, target))
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
    older_than: Annotated[str, typer.Option(help="Minimum age of expired versions; at least 1 h.")] = "7 d",
    min_versions: Annotated[
        int | None, typer.Option(min=1, help="Keep at least this many of the newest versions (Iceberg).")
    ] = None,
    orphans_older_than: Annotated[
        str, typer.Option(help="Minimum age of deleted files without a version; at least 1 d.")
    ] = "3 d",
) -> None:
    """Delete old versions and their files, and files left behind by crashes.

    The offsets of all partitions stay, idle ones too. Younger data stays: staged files of writers,
    and commits whose outcome they look up. For example:

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
        (d.table, f"{d.versions:,}", f"{d.files:,}", "among them" if d.orphans is None else f"{d.orphans:,}")
        for d in done
    ]
    print_table(["table", "versions expired", "files deleted", "orphans deleted"], rows)
    raise typer.Exit(code)


def _run_for_each_table(names: Sequence[str], work: Callable[[str], T]) -> tuple[list[T], int]:
    """Run `work` for each table; print errors and return the highest exit code."""
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
