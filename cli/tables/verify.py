"""`trimtab tables verify`: check that each record is in its table once, as on the broker."""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trimtab.cli.lake_session import load_lake_settings, open_lake_session, select_tables
from trimtab.cli.output_formats import FormatOption, PrintFormat, print_table

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.verify.table_verification import (
        PartitionVerification,
        RangeSampler,
        TableVerification,
    )
    from trimtab.consumer_sdk.lake.verify.topic_log import BrokerTopicLog


SAMPLE_WINDOWS: Final = 10
SAMPLE_WINDOW_OFFSETS: Final = 500
"""Windows of a partition in a sample, and offsets of one."""


class BrokerComparison(StrEnum):
    """Extent of the comparison with the broker."""

    NO = "no"
    SAMPLE = "sample"
    ALL = "all"


def verify(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables, like lake.orders; default: all.")
    ] = None,
    *,
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration of trimtab ingest.")],
    against_broker: Annotated[
        BrokerComparison,
        typer.Option(
            help="Compare timestamp and key with the records on the broker: of all rows, of a "
            "sample, or not at all."
        ),
    ] = BrokerComparison.SAMPLE,
    strict: Annotated[bool, typer.Option("--strict", help="Count unknown offsets as faults.")] = False,
    output: FormatOption = PrintFormat.TEXT,
) -> None:
    """Check every row for duplicates, missing records and unexpected rows.

    A hole in the offsets is a fault if Kafka has a record there. Dead letters count as rows, and
    tables record what retention deleted before it was read. Writers may run meanwhile. Exits with
    1 if it finds faults. For example:

        trimtab tables verify --config ingest.yaml

        trimtab tables verify lake.orders --config ingest.yaml --against-broker all --format json
    """
    from trimtab.consumer_sdk.lake.verify.lake_verification import (  # noqa: PLC0415 - pyspark is slow to load
        LakeVerification,
        TableKindRules,
    )

    whole = load_lake_settings(config, None)
    rules, lots = TableKindRules.from_config(whole), _create_range_sampler(against_broker)
    with (
        _open_broker_log(whole, against_broker) as log,
        open_lake_session(whole) as lake,
        _show_progress() as tell,
    ):
        _use_all_cores(lake.spark, whole)
        work = LakeVerification(lake, rules, log, lots, tell)
        found = list(work.run(select_tables(lake, tables)))
    bad = any(table.is_bad(strict=strict) for table in found)
    if output is PrintFormat.JSON:
        _print_json(found, ok=not bad)
    else:
        _print_verification(found)
    if bad:
        raise typer.Exit(1)


def _create_range_sampler(comparison: BrokerComparison) -> "RangeSampler | None":
    from random import Random  # noqa: PLC0415 - keeps --help fast

    from trimtab.consumer_sdk.lake.verify.table_verification import (  # noqa: PLC0415 - as above
        MAX_READ_OFFSETS,
        sample_everything,
        sample_windows,
    )

    if comparison is BrokerComparison.SAMPLE:
        return sample_windows(SAMPLE_WINDOWS, SAMPLE_WINDOW_OFFSETS, Random().randrange)  # noqa: S311 - not a secret
    return sample_everything(MAX_READ_OFFSETS) if comparison is BrokerComparison.ALL else None


def _use_all_cores(spark: Any, config: Mapping[str, Any]) -> None:
    """Sort rows on all cores unless the configuration sets the number of shuffle partitions."""
    name = "spark.sql.shuffle.partitions"
    if name not in config:
        spark.conf.set(name, spark.sparkContext.defaultParallelism)


@contextmanager
def _open_broker_log(
    config: Mapping[str, Any], comparison: BrokerComparison
) -> "Generator[BrokerTopicLog | None, None, None]":
    from trimtab.consumer_sdk.lake.verify import topic_log  # noqa: PLC0415 - keeps --help fast

    if comparison is BrokerComparison.NO:
        yield None
        return
    log = topic_log.BrokerTopicLog(topic_log.build_reader_settings(config))
    try:
        yield log
    finally:
        log.close()


@contextmanager
def _show_progress() -> Generator[Callable[[str, int, int], None], None, None]:
    """Show a progress bar on a terminal."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help fast
    from rich.progress import Progress  # noqa: PLC0415 - keeps --help fast

    console = Console(file=sys.stderr)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        bars = {"": bar.add_task("counting rows", total=None)}

        def tell(table: str, done: int, total: int) -> None:
            if table not in bars:
                bars[table] = bar.add_task(f"{table}: comparing", total=total)
            bar.update(bars[table], completed=done, total=total)

        yield tell


def _print_json(found: "list[TableVerification]", *, ok: bool) -> None:
    import json  # noqa: PLC0415 - keeps --help fast
    from dataclasses import asdict  # noqa: PLC0415 - keeps --help fast

    typer.echo(json.dumps({"ok": ok, "tables": [asdict(v) for v in found]}, indent=2))


def _print_verification(found: "list[TableVerification]") -> None:
    from trimtab.consumer_sdk.lake.verify.table_verification import FAULT_ADVICE, UNKNOWN_ADVICE  # noqa: PLC0415 - as above

    rows: list[tuple[str, ...]] = []
    for table in found:
        for part in table.partitions:
            place = (part.topic, str(part.partition), f"{part.rows:,}")
            offset = _format_offset(part.committed_offset)
            result = (f"{part.compared:,}", _describe_partition(part))
            rows.append((table.table, table.kind, *place, offset, *result))
        if not table.partitions:
            note = "; ".join(table.notes) or "nothing to verify"
            rows.append((table.table, table.kind, *[""] * 5, note))
    headings = ["table", "kind", "topic", "partition", "rows", "committed", "compared", "result"]
    print_table(headings, rows)
    sorts = {sort for table in found for sort in table.faults}
    for sort in (sort for sort in FAULT_ADVICE if sort in sorts):
        typer.echo(f"{sort.replace('_', ' ')}: {FAULT_ADVICE[sort]}")
    if any(part.unknown for table in found for part in table.partitions):
        typer.echo(f"unknown: {UNKNOWN_ADVICE}")


def _format_offset(mark: int | None) -> str:
    return "none" if mark is None else f"{mark:,}"


def _describe_partition(part: "PartitionVerification") -> str:
    told = [_describe_fault(part, sort) for sort in part.faults]
    told += [f"{part.unknown:,} unknown"] if part.unknown else []
    told += [f"{part.recorded_gaps:,} recorded as lost to retention"] if part.recorded_gaps else []
    return "; ".join(told) or "ok"


def _describe_fault(part: "PartitionVerification", sort: str) -> str:
    count, some = getattr(part, sort), part.examples.get(sort, [])
    more = ", …" if count > len(some) else ""
    where = f" at {', '.join(map(str, some))}{more}" if some else ""
    return f"{count:,} {sort.replace('_', ' ')}{where}"
