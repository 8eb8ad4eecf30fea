"""`trimtab tables`: what is in the lake, and up to which offsets."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.assignor.errors import SettingError

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.config import SessionConfig
    from trimtab.consumer_sdk.lake.inventory import TableFacts


class Format(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"


def tables(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The configuration of trimtab ingest.")
    ] = None,
    warehouse: Annotated[
        Path | None, typer.Option(help="The folder of an embedded lake, instead of --config.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
) -> None:
    """List the lake's tables: rows, files, snapshots, and the next offset of every partition.

    For example:

        trimtab tables --config ingest.yaml

        trimtab tables --warehouse ./lake --format json
    """
    wanted = _session(config, warehouse)
    from trimtab.consumer_sdk.lake.inventory import (  # noqa: PLC0415 - pyspark is slow to load
        check_exists,
        inventory,
    )
    from trimtab.consumer_sdk.lake.writer import open_lake  # noqa: PLC0415 - as above

    check_exists(wanted)
    lake = open_lake(wanted)
    try:
        found = inventory(lake)
    finally:
        lake.close()
    if form is Format.JSON:
        _print_json(found)
    else:
        _print_table(found)


def _session(config: Path | None, warehouse: Path | None) -> "SessionConfig":
    from trimtab.consumer_sdk.ingest import load  # noqa: PLC0415 - pyspark is slow to load
    from trimtab.consumer_sdk.lake.config import session  # noqa: PLC0415 - as above
    from trimtab.consumer_sdk.lake.inventory import format_of  # noqa: PLC0415 - as above

    if (config is None) == (warehouse is None):
        raise SettingError("say where the lake is: either --config FILE or --warehouse DIR")
    if warehouse is None:
        assert config is not None
        return session(load(config))
    return session({"lake.warehouse": str(warehouse), "lake.format": format_of(warehouse)})


def _print_json(found: "list[TableFacts]") -> None:
    import json  # noqa: PLC0415 - keeps --help fast

    typer.echo(json.dumps({"tables": [asdict(facts) for facts in found]}, indent=2))


def _print_table(found: "list[TableFacts]") -> None:
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.table import Table  # noqa: PLC0415 - keeps --help fast

    from trimtab.assignor.units import format_bytes  # noqa: PLC0415 - keeps --help fast

    shown = Table("table", "rows", "files", "size", "snapshots", "group", "topic", "next offsets")
    for facts in found:
        size = format_bytes(facts.bytes)
        head = [facts.name, f"{facts.rows:,}", str(facts.files), size, str(facts.snapshots)]
        for line in _marks(facts):
            shown.add_row(*head, *line)
            head = [""] * len(head)
    Console().print(shown)


def _marks(facts: "TableFacts") -> list[tuple[str, str, str]]:
    lines = [
        (group, topic, " ".join(f"{number}:{offset}" for number, offset in partitions.items()))
        for group, topics in facts.marks.items()
        for topic, partitions in topics.items()
    ]
    return lines or [("", "", facts.note or "none: not written by Trimtab")]
