"""The options of `trimtab dead-letter list` and `replay`."""

from datetime import datetime
from typing import Annotated

import typer

from trimtab.cli.lake_options import LakeOptions
from trimtab.cli.settings_options import build_command


class SelectionOptions(LakeOptions):
    """Options that select dead letters."""

    topic: Annotated[str | None, typer.Option(help="Only records of this topic.")] = None
    error: Annotated[str | None, typer.Option(help="Only records with this text in their reason.")] = None
    since: Annotated[
        datetime | None, typer.Option(help="Only records with this timestamp (UTC) or a later one.")
    ] = None
    until: Annotated[datetime | None, typer.Option(help="Only records before this timestamp (UTC).")] = None


class ListOptions(SelectionOptions, run="trimtab.cli.dead_letter.run:list_dead_letters"):
    """Count dead letters by table, topic and reason.

    For example:

        trimtab dead-letter list --config ingest.yaml

        trimtab dead-letter list lake.orders --warehouse ./lake --since 2026-11-01
    """

    table: Annotated[
        str | None, typer.Argument(help="Dead-letter table or its topic table; default: all.")
    ] = None


class ReplayOptions(SelectionOptions, run="trimtab.cli.dead_letter.run:replay"):
    """Send dead letters to Kafka again and delete them from their table.

    At least once: a row is deleted after Kafka has confirmed its record, so the replay after a
    killed one may send up to 10,000 records again. The headers trimtab.replay.topic, .partition,
    .offset, .timestamp and .error name the origin of a record.

    For example:

        trimtab dead-letter replay lake.orders --config ingest.yaml --dry-run

        trimtab dead-letter replay lake.orders --config ingest.yaml --error "does not fit"

        trimtab dead-letter replay lake.orders --warehouse ./lake -b localhost:9092 --to-topic new
    """

    table: Annotated[str, typer.Argument(help="Dead-letter table or its topic table.")]
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", "-b", help="Brokers; default: those of --config.")
    ] = None
    to_topic: Annotated[
        str | None, typer.Option(help="Target topic; default: each record's original topic.")
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Limit of records to send.")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the records without sending them.")] = (
        False
    )


COMMAND = typer.Typer(no_args_is_help=True)
COMMAND.command("list")(build_command(ListOptions))
COMMAND.command()(build_command(ReplayOptions))


@COMMAND.callback()
def show_overview() -> None:
    """List records that could not be decoded, and send them again.

    For example:

        trimtab dead-letter list --config ingest.yaml

        trimtab dead-letter replay lake.orders --config ingest.yaml --dry-run
    """
