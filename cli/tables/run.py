"""`trimtab tables`: list the lake's tables and their committed offsets."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

import typer

from trimtab.cli.lake_session import (
    INGEST_CONFIG_OPTION,
    WAREHOUSE_OPTION,
    load_lake_settings,
    open_lake_session,
)
from trimtab.cli.output_formats import FormatOption, PrintFormat, print_table
from trimtab.cli.tables.maintenance import compact, expire
from trimtab.cli.tables.verify import verify
from trimtab.common.errors import SettingError

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.inventory import TableInventory

tables = typer.Typer()
for command in (compact, expire, verify):
    tables.command()(command)


@tables.callback(invoke_without_command=True)
def list_tables(
    context: typer.Context,
    *,
    config: INGEST_CONFIG_OPTION = None,
    warehouse: WAREHOUSE_OPTION = None,
    form: FormatOption = PrintFormat.TEXT,
) -> None:
    """List the lake's tables: rows, files, snapshots, and the next offsets of partitions.

    The subcommands maintain and verify tables while writers run. For example:

        trimtab tables --config ingest.yaml

        trimtab tables --warehouse ./lake --format json

        trimtab tables compact --config ingest.yaml --dry-run

        trimtab tables expire --config ingest.yaml --older-than "7 d"

        trimtab tables verify --config ingest.yaml
    """
    if context.invoked_subcommand is not None:
        if config is not None or warehouse is not None:
            raise SettingError(f"write the options after {context.invoked_subcommand!r}")
        return
    from trimtab.consumer_sdk.lake.inventory import list_table_inventory  # noqa: PLC0415 - pyspark is slow

    with open_lake_session(load_lake_settings(config, warehouse)) as lake:
        found = list_table_inventory(lake)
    if form is PrintFormat.JSON:
        _print_json(found)
    else:
        _print_inventory(found)


def _print_json(found: "list[TableInventory]") -> None:
    import json  # noqa: PLC0415 - keeps --help fast

    typer.echo(json.dumps({"tables": [asdict(facts) for facts in found]}, indent=2))


def _print_inventory(found: "list[TableInventory]") -> None:
    from trimtab.common.units import format_bytes  # noqa: PLC0415 - keeps --help fast

    rows: list[list[str]] = []
    for facts in found:
        size = format_bytes(facts.bytes)
        head = [facts.name, f"{facts.rows:,}", f"{facts.files:,}", size, f"{facts.snapshots:,}"]
        for line in _describe_committed_offsets(facts):
            rows.append([*head, *line])
            head = [""] * len(head)
    print_table(["table", "rows", "files", "size", "snapshots", "group", "next offsets"], rows)


def _describe_committed_offsets(facts: "TableInventory") -> list[tuple[str, str]]:
    lines = [
        (group, f"{topic} {_format_partition_ranges(offsets)}: {_format_offset_range(offsets)}")
        for group, topics in facts.committed_offsets.items()
        for topic, offsets in topics.items()
    ]
    return lines or [("", facts.note or "none: not written by Trimtab")]


def _format_partition_ranges(partitions: Iterable[int]) -> str:
    """Return sorted partitions as ranges: "0-7" or "0,2-3"."""
    # In a run of consecutive numbers, number minus index is constant.
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(partitions), lambda item: item[1] - item[0])
    ]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _format_offset_range(offsets: Mapping[int, int]) -> str:
    lowest, highest = min(offsets.values()), max(offsets.values())
    return f"{lowest:,}" if lowest == highest else f"{lowest:,} … {highest:,}"
