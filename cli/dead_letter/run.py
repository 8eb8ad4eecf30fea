"""`trimtab dead-letter`: list undecodable records, send them to Kafka again."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.lake_session import (
    INGEST_CONFIG_OPTION,
    WAREHOUSE_OPTION,
    load_lake_settings,
    open_lake_session,
)
from trimtab.cli.output_formats import print_table

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.dead_letters import DeadLetterSelection, DeadLetterSummary
    from trimtab.consumer_sdk.lake.lake import SparkLake

dead_letter = typer.Typer(no_args_is_help=True)

TABLE_ARGUMENT = Annotated[
    str | None, typer.Argument(help="Dead-letter table or its topic table; default: all.")
]
TOPIC_OPTION = Annotated[str | None, typer.Option(help="Only records of this topic.")]
ERROR_OPTION = Annotated[str | None, typer.Option(help="Only records with this text in their reason.")]
SINCE_OPTION = Annotated[
    datetime | None, typer.Option(help="Only records with this timestamp (UTC) or a later one.")
]
UNTIL_OPTION = Annotated[datetime | None, typer.Option(help="Only records before this timestamp (UTC).")]


@dead_letter.callback()
def show_overview() -> None:
    """List records that could not be decoded, and send them again.

    For example:

        trimtab dead-letter list --config ingest.yaml

        trimtab dead-letter replay lake.orders --config ingest.yaml --dry-run
    """


@dead_letter.command("list")
def list_dead_letters(  # noqa: PLR0913 - one argument an option
    table: TABLE_ARGUMENT = None,
    *,
    config: INGEST_CONFIG_OPTION = None,
    warehouse: WAREHOUSE_OPTION = None,
    topic: TOPIC_OPTION = None,
    error: ERROR_OPTION = None,
    since: SINCE_OPTION = None,
    until: UNTIL_OPTION = None,
) -> None:
    """Count dead letters by table, topic and reason.

    For example:

        trimtab dead-letter list --config ingest.yaml

        trimtab dead-letter list lake.orders --warehouse ./lake --since 2026-11-01
    """
    wanted = _build_selection(topic, error, since, until)
    with open_lake_session(load_lake_settings(config, warehouse)) as lake:
        _print_summary(_summarize_dead_letters(lake, table, wanted))


@dead_letter.command()
def replay(  # noqa: PLR0913 - one argument an option
    table: Annotated[str, typer.Argument(help="Dead-letter table or its topic table.")],
    *,
    config: INGEST_CONFIG_OPTION = None,
    warehouse: WAREHOUSE_OPTION = None,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", "-b", help="Brokers; default: those of --config.")
    ] = None,
    to_topic: Annotated[
        str | None, typer.Option(help="Target topic; default: each record's original topic.")
    ] = None,
    topic: TOPIC_OPTION = None,
    error: ERROR_OPTION = None,
    since: SINCE_OPTION = None,
    until: UNTIL_OPTION = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Limit of records to send.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the records without sending them.")
    ] = False,
) -> None:
    """Send dead letters to Kafka again and delete them from their table.

    At least once: a row is deleted after Kafka has confirmed its record, so the replay after a
    killed one may send up to 10,000 records again. The headers trimtab.replay.topic, .partition,
    .offset, .timestamp and .error name the origin of a record.

    For example:

        trimtab dead-letter replay lake.orders --config ingest.yaml --dry-run

        trimtab dead-letter replay lake.orders --config ingest.yaml --error "does not fit"

        trimtab dead-letter replay lake.orders --warehouse ./lake -b localhost:9092 --to-topic new
    """
    from trimtab.consumer_sdk.lake import dead_letters  # noqa: PLC0415 - pyspark is slow to load

    whole = load_lake_settings(config, warehouse)
    whole |= {} if bootstrap is None else {"bootstrap.servers": bootstrap}
    sending = None if dry_run else dead_letters.build_producer_settings(whole)
    wanted = _build_selection(topic, error, since, until, limit)
    with open_lake_session(whole) as lake:
        if sending is None:
            _print_summary(_summarize_dead_letters(lake, table, wanted))
        else:
            (name,) = dead_letters.list_dead_letter_tables(lake, table)
            sent = dead_letters.DeadLetterReplay(lake, name, _connect_producer(sending), to_topic).run(wanted)
            typer.echo(f"{name}: {sent:,} records sent and deleted")


def _connect_producer(config: dict[str, Any]) -> Any:
    from confluent_kafka import Producer  # noqa: PLC0415 - keeps --help fast

    from trimtab.common.kafka_security.preflight import check_connection  # noqa: PLC0415 - as above

    check_connection(config)
    return Producer(config)


def _build_selection(
    topic: str | None,
    error: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int | None = None,
) -> "DeadLetterSelection":
    from trimtab.consumer_sdk.lake.dead_letters import DeadLetterSelection  # noqa: PLC0415 - pyspark is slow

    return DeadLetterSelection(topic, error, _mark_as_utc(since), _mark_as_utc(until), limit)


def _mark_as_utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.replace(tzinfo=UTC)


def _summarize_dead_letters(
    lake: "SparkLake", table: str | None, selection: "DeadLetterSelection"
) -> "list[DeadLetterSummary]":
    from trimtab.consumer_sdk.lake import dead_letters  # noqa: PLC0415 - pyspark is slow to load

    found = dead_letters.list_dead_letter_tables(lake, table)
    return [heap for name in found for heap in dead_letters.summarize_dead_letters(lake, name, selection)]


def _print_summary(summaries: "list[DeadLetterSummary]") -> None:
    rows = [
        (s.table, s.topic, s.error, f"{s.records:,}", _format_time(s.first), _format_time(s.last))
        for s in summaries
    ]
    print_table(["table", "topic", "reason", "records", "first", "last"], rows)
    typer.echo(f"{sum(s.records for s in summaries):,} records")


def _format_time(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"
