"""The options of `trimtab tables` and its subcommands."""

from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from trimtab.cli.lake_options import LakeOptions
from trimtab.cli.output_formats import FormatOption, PrintFormat
from trimtab.cli.settings_options import CommandOptions, build_command
from trimtab.common.errors import SettingError


class RowsFormat(StrEnum):
    """Format of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    ARROW = "arrow"


class BrokerComparison(StrEnum):
    """Extent of the comparison with the broker."""

    NO = "no"
    SAMPLE = "sample"
    ALL = "all"


class Engine(StrEnum):
    """Engine that reads tables."""

    SPARK = "spark"
    PYICEBERG = "pyiceberg"
    DUCKDB = "duckdb"
    TRINO = "trino"


class TablesOptions(LakeOptions, run="trimtab.cli.tables.run:tables"):
    """List the lake's tables: rows, files, snapshots, and the next offsets of partitions.

    The subcommands maintain and verify tables while writers run. For example:

        trimtab tables --config ingest.yaml

        trimtab tables --warehouse ./lake --format json

        trimtab tables compact --config ingest.yaml --dry-run

        trimtab tables expire --config ingest.yaml --older-than "7 d"

        trimtab tables verify --config ingest.yaml

        trimtab tables read lake.orders --config ingest.yaml

        trimtab tables connect duckdb --config ingest.yaml
    """

    output: FormatOption = PrintFormat.TEXT


class MaintenanceOptions(LakeOptions):
    """Options of the commands that rewrite or delete files."""

    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables, like lake.orders; default: all written by Trimtab.")
    ] = None


class CompactOptions(MaintenanceOptions, run="trimtab.cli.tables.maintenance:compact"):
    """Rewrite small files into large ones with Spark; writers may run meanwhile.

    Rows and offsets stay unchanged. A lost race against a writer is retried, ten times at most.
    `expire` deletes the small files once no kept version references them. For example:

        trimtab tables compact --config ingest.yaml --dry-run

        trimtab tables compact lake.orders --config ingest.yaml --target-size "128 MB"
    """

    target_size: Annotated[
        str | None, typer.Option(help='Size of new files, like "128 MB"; default: the table\'s setting.')
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the files to rewrite without rewriting them.")
    ] = False


class ExpireOptions(MaintenanceOptions, run="trimtab.cli.tables.maintenance:expire"):
    """Delete old versions and their files, and files left behind by crashes.

    The offsets of all partitions stay, idle ones too. Younger data stays: staged files of writers,
    and commits whose outcome they look up. For example:

        trimtab tables expire --config ingest.yaml

        trimtab tables expire lake.orders --config ingest.yaml --older-than "1 d" --min-versions 10
    """

    older_than: Annotated[str, typer.Option(help="Minimum age of expired versions; at least 1 h.")] = "7 d"
    min_versions: Annotated[
        int | None, typer.Option(min=1, help="Keep at least this many of the newest versions (Iceberg).")
    ] = None
    orphans_older_than: Annotated[
        str, typer.Option(help="Minimum age of deleted files without a version; at least 1 d.")
    ] = "3 d"


class VerifyOptions(CommandOptions, run="trimtab.cli.tables.verify:verify"):
    """Check every row for duplicates, missing records and unexpected rows.

    A hole in the offsets is a fault if Kafka has a record there. Dead letters count as rows, and
    tables record what retention deleted before it was read. Writers may run meanwhile. Exits with
    1 if it finds faults. For example:

        trimtab tables verify --config ingest.yaml

        trimtab tables verify lake.orders --config ingest.yaml --against-broker all --format json
    """

    tables: Annotated[list[str] | None, typer.Argument(help="Tables, like lake.orders; default: all.")] = None
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration of trimtab ingest.")]
    against_broker: Annotated[
        BrokerComparison,
        typer.Option(
            help="Compare timestamp and key with the records on the broker: of all rows, of a "
            "sample, or not at all."
        ),
    ] = BrokerComparison.SAMPLE
    strict: Annotated[bool, typer.Option("--strict", help="Count unknown offsets as faults.")] = False
    output: FormatOption = PrintFormat.TEXT


class ReadOptions(CommandOptions, run="trimtab.cli.tables.read:read"):
    """Print the rows of a topic's table and the records of the topic that it does not have yet.

    The records are decoded as the sink decodes them. Reading joins no group and commits nothing. For
    example:

        trimtab tables read lake.orders --config ingest.yaml --limit 20

        trimtab tables read lake.orders --config ingest.yaml --sql "SELECT count(*) FROM orders"

        trimtab tables read lake.orders --config ingest.yaml --format csv > orders.csv
    """

    table: Annotated[str, typer.Argument(help="Table of a topic, like lake.orders.")]
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration of trimtab ingest.")]
    sql: Annotated[
        str | None, typer.Option(help="Query of DuckDB; the table has its name without the namespace.")
    ] = None
    limit: Annotated[int | None, typer.Option(min=0, help="Print at most this many rows.")] = None
    engine: Annotated[
        str | None, typer.Option(help="Reads the table: arrow or spark; default: arrow where it can.")
    ] = None
    output: Annotated[
        RowsFormat, typer.Option("--format", help="json: an object per line; arrow: a stream of Arrow IPC.")
    ] = RowsFormat.TABLE


class ConnectOptions(LakeOptions, run="trimtab.cli.tables.connect:connect"):
    """Print what to paste into another engine to read the tables of a folder.

    Spark's and Trino's lines are settings, pyiceberg's are Python, DuckDB's are SQL. For example:

        trimtab tables connect spark --config ingest.yaml >> conf/spark-defaults.conf

        trimtab tables connect duckdb lake.orders --warehouse ./lake | duckdb

        trimtab tables connect pyiceberg --config ingest.yaml

        trimtab tables connect trino --config ingest.yaml > etc/catalog/trimtab.properties
    """

    engine: Annotated[Engine, typer.Argument(help="Engine that reads the tables.")]
    table: Annotated[
        str | None, typer.Argument(help="Table of the example, like lake.orders; default: the first.")
    ] = None


COMMAND = typer.Typer()
for subcommand in (CompactOptions, ExpireOptions, VerifyOptions, ReadOptions, ConnectOptions):
    COMMAND.command()(build_command(subcommand))

_list_tables = build_command(TablesOptions)


@COMMAND.callback(invoke_without_command=True)
@wraps(_list_tables)
def list_unless_subcommand(ctx: typer.Context, **values: Any) -> None:
    """List the tables, unless a subcommand follows."""
    # click runs a group's callback before its subcommand, even before that one's --help
    if ctx.invoked_subcommand is None:
        _list_tables(ctx=ctx, **values)
    elif values["config"] is not None or values["warehouse"] is not None:
        raise SettingError(f"write the options after {ctx.invoked_subcommand!r}")
