"""`trimtab tables`: what is in the lake, up to which offsets, and the care of it."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from trimtab.cli.lake_session import (
    INGEST_CONFIG_OPTION,
    WAREHOUSE_OPTION,
    load_lake_settings,
    open_lake_session,
)
from trimtab.cli.output_formats import FormatOption, PrintFormat
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
    """List the lake's tables: rows, files, snapshots, and the next offset of every partition.

    The commands take care of them, beside writers that go on. For example:

        trimtab tables --config ingest.yaml

        trimtab tables --warehouse ./lake --format json

        trimtab tables compact --config ingest.yaml --dry-run

        trimtab tables expire --config ingest.yaml --older-than "7 d"

        trimtab tables verify --config ingest.yaml
    """
    if context.invoked_subcommand is not None:
        if config is not None or warehouse is not None:
            raise SettingError(f"write the options behind {context.invoked_subcommand!r}")
        return
    from trimtab.consumer_sdk.lake.inventory import list_table_inventory  # noqa: PLC0415 - pyspark is slow

    with open_lake_session(load_lake_settings(config, warehouse)) as lake:
        found = list_table_inventory(lake)
    if form is PrintFormat.JSON:
        _print_json(found)
    else:
        _print_table(found)


def _print_json(found: "list[TableInventory]") -> None:
    import json  # noqa: PLC0415 - keeps --help fast

    typer.echo(json.dumps({"tables": [asdict(facts) for facts in found]}, indent=2))


def _print_table(found: "list[TableInventory]") -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415 - keeps --help fast

    from trimtab.common.units import format_bytes  # noqa: PLC0415 - keeps --help fast

    shown = Table("table", "rows", "files", "size", "snapshots", "group", "topic", "next offsets")
    for facts in found:
        size = format_bytes(facts.bytes)
        head = [facts.name, f"{facts.rows:,}", str(facts.files), size, str(facts.snapshots)]
        for line in _format_committed_offsets(facts):
            shown.add_row(*head, *line)
            head = [""] * len(head)
    Console().print(shown)


def _format_committed_offsets(facts: "TableInventory") -> list[tuple[str, str, str]]:
    lines = [
        (group, topic, " ".join(f"{number}:{offset}" for number, offset in partitions.items()))
        for group, topics in facts.marks.items()
        for topic, partitions in topics.items()
    ]
    return lines or [("", "", facts.note or "none: not written by Trimtab")]
