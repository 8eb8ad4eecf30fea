"""`trimtab tables compact` and `expire`."""

import random
from collections.abc import Callable, Sequence

import typer

from trimtab.cli.lake_session import load_lake_settings, open_lake_session, select_tables
from trimtab.cli.output_formats import print_table
from trimtab.cli.tables.options import CompactOptions, ExpireOptions
from trimtab.cli.terminal import print_line
from trimtab.common.clock import SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.common.type_vars import ResultT
from trimtab.common.units import format_bytes, format_count, parse_bytes, parse_seconds
from trimtab.consumer_sdk.lake.commits import maintenance
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.session.factory import create_maintenance
from trimtab.consumer_sdk.lake.tables.inventory import list_written_tables


def compact(options: CompactOptions) -> None:
    """Compact the tables and print a line for each. Raises SettingError, typer.Exit."""
    settings = load_lake_settings(options.config, options.warehouse)
    size = None if options.target_size is None else parse_bytes(options.target_size, "--target-size")
    with open_lake_session(settings) as lake:
        names = _select_written(lake, options.tables)
        table_maintenance = create_maintenance(lake)
        if options.dry_run:
            plans, code = _run_for_each(
                names, lambda name: (name, table_maintenance.plan_compaction(name, size))
            )
            lines = [(name, *_format_amount(small.files, small.bytes)) for name, small in plans]
            print_table(["table", "would rewrite", "size"], lines)
            raise typer.Exit(code)
        done, code = _run_for_each(
            names, lambda name: maintenance.compact_table(table_maintenance, name, size, _create_backoff())
        )
    rows = [
        (d.table, *_format_amount(d.old_files, d.bytes), f"{d.new_files:,}", f"{d.lost_races:,}")
        for d in done
    ]
    print_table(["table", "rewritten", "size", "into", "races lost, tried again"], rows)
    raise typer.Exit(code)


def expire(options: ExpireOptions) -> None:
    """Expire versions of the tables and print a line for each. Raises SettingError, typer.Exit."""
    policy = maintenance.ExpiryPolicy(
        parse_seconds(options.older_than, "--older-than"),
        parse_seconds(options.orphans_older_than, "--orphans-older-than"),
        options.min_versions,
    )
    policy.check_ages()
    with open_lake_session(load_lake_settings(options.config, options.warehouse)) as lake:
        table_maintenance = create_maintenance(lake)
        now = SystemClock().wall()
        done, code = _run_for_each(
            _select_written(lake, options.tables),
            lambda name: maintenance.expire_table(table_maintenance, name, policy, now, _create_backoff()),
        )
    rows = [
        # Spark's VACUUM deletes both kinds and does not count orphans apart
        (d.table, f"{d.versions:,}", f"{d.files:,}", "among them" if d.orphans is None else f"{d.orphans:,}")
        for d in done
    ]
    print_table(["table", "versions expired", "files deleted", "orphans deleted"], rows)
    raise typer.Exit(code)


def _run_for_each(names: Sequence[str], work: Callable[[str], ResultT]) -> tuple[list[ResultT], int]:
    """Run `work` for each table; print errors and return the results and the highest exit code."""
    done: list[ResultT] = []
    code = 0
    for name in names:
        try:
            done.append(work(name))
        except TrimtabError as error:
            print_line(f"{name}: {error}", err=True)
            code = max(code, error.exit_code)
    return done, code


def _select_written(lake: SparkLake, names: list[str] | None) -> list[str]:
    return select_tables(lake, names) if names else list_written_tables(lake)


def _create_backoff() -> RetryBackoff:
    return RetryBackoff(random.Random())  # noqa: S311 - jitter, which must differ between processes


def _format_amount(files: int, size: int) -> tuple[str, str]:
    return format_count(files, "file", separator=","), format_bytes(size)
