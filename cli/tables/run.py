"""`trimtab tables`: list the lake's tables and their committed offsets."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import groupby

import typer

from trimtab.cli.lake_session import load_lake_settings, open_lake_session
from trimtab.cli.output_formats import PrintFormat, print_table
from trimtab.cli.tables.options import TablesOptions
from trimtab.cli.terminal import print_line
from trimtab.common.units import format_bytes
from trimtab.consumer_sdk.lake.options.settings import parse_session_config
from trimtab.consumer_sdk.lake.tables.inventory import TableInventory, list_table_inventory
from trimtab.consumer_sdk.lake.tables.warehouse import describe_warehouse


def tables(options: TablesOptions) -> None:
    """List the tables of a lake. Raises SettingError if the lake is not named or does not exist."""
    config = load_lake_settings(options.config, options.warehouse)
    with open_lake_session(config) as lake:
        inventory = list_table_inventory(lake)
    if not inventory:
        print_line(f"no tables in {describe_warehouse(parse_session_config(config))}", err=True)
    if options.output is PrintFormat.JSON:
        typer.echo(json.dumps({"tables": [asdict(table) for table in inventory]}, indent=2))
    else:
        _print_inventory(inventory)


def _print_inventory(inventory: list[TableInventory]) -> None:
    rows: list[list[str]] = []
    for table in inventory:
        size = format_bytes(table.bytes)
        head = [table.name, f"{table.rows:,}", f"{table.files:,}", size, f"{table.snapshots:,}"]
        for group, offsets in _describe_offsets(table):
            rows.append([*head, group, offsets])
            head = [""] * len(head)  # a table's own columns stand on its first line only
    print_table(["table", "rows", "files", "size", "snapshots", "group", "next offsets"], rows)


def _describe_offsets(table: TableInventory) -> list[tuple[str, str]]:
    lines = [
        (group, f"{topic} {_format_partitions(offsets)}: {_format_range(offsets)}")
        for group, topics in table.committed_offsets.items()
        for topic, offsets in topics.items()
    ]
    return lines or [("", table.note or "none: not written by Trimtab")]


def _format_partitions(partitions: Iterable[int]) -> str:
    """Return sorted partitions as ranges: "0-7" or "0,2-3"."""
    # in a run of consecutive numbers, number minus index is constant
    keyed = groupby(enumerate(partitions), lambda item: item[1] - item[0])
    runs = [[number for _, number in run] for _, run in keyed]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _format_range(offsets: Mapping[int, int]) -> str:
    lowest, highest = min(offsets.values()), max(offsets.values())
    return f"{lowest:,}" if lowest == highest else f"{lowest:,} … {highest:,}"
