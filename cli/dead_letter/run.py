"""`trimtab dead-letter`: list undecodable records, send them to Kafka again."""

from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

from trimtab.cli.dead_letter.options import ListOptions, ReplayOptions, SelectionOptions
from trimtab.cli.lake_session import load_lake_settings, open_lake_session
from trimtab.cli.output_formats import print_table
from trimtab.cli.terminal import print_line
from trimtab.common.kafka_security.preflight import check_connection
from trimtab.common.units import format_count
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.tables import dead_letters


def list_dead_letters(options: ListOptions) -> None:
    """Print the counts of dead letters. Raises SettingError."""
    with open_lake_session(load_lake_settings(options.config, options.warehouse)) as lake:
        _print_summary(lake, options.table, _build_selection(options))


def replay(options: ReplayOptions) -> None:
    """Send and delete the selected dead letters of one table. Raises SettingError, PeerError."""
    config = load_lake_settings(options.config, options.warehouse)
    config |= {} if options.bootstrap is None else {"bootstrap.servers": options.bootstrap}
    # before Spark starts: a missing --bootstrap is an error within a second
    producer_config = None if options.dry_run else dead_letters.build_producer_settings(config)
    selection = _build_selection(options, options.limit)
    with open_lake_session(config) as lake:
        if producer_config is None:
            _print_summary(lake, options.table, selection)
            return
        (name,) = dead_letters.list_dead_letter_tables(lake, options.table)
        check_connection(producer_config)  # librdkafka retries a refused login for ever
        producer: Any = Producer(producer_config)
        sent = dead_letters.DeadLetterReplay(lake, name, producer, options.to_topic).run(selection)
        print_line(f"{name}: {format_count(sent, 'record', separator=',')} sent and deleted")


def _build_selection(options: SelectionOptions, limit: int | None = None) -> dead_letters.DeadLetterSelection:
    return dead_letters.DeadLetterSelection(
        options.topic, options.error, _mark_as_utc(options.since), _mark_as_utc(options.until), limit
    )


def _mark_as_utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.replace(tzinfo=UTC)  # typer parses times without a zone


def _print_summary(lake: SparkLake, table: str | None, selection: dead_letters.DeadLetterSelection) -> None:
    names = dead_letters.list_dead_letter_tables(lake, table)
    summaries = [s for name in names for s in dead_letters.summarize_dead_letters(lake, name, selection)]
    rows = [
        (s.table, s.topic, s.field or "", s.error, f"{s.records:,}", s.first or "", s.last or "")
        for s in summaries
    ]
    print_table(["table", "topic", "field", "reason", "records", "first", "last"], rows)
    print_line(format_count(sum(s.records for s in summaries), "record", separator=","))
