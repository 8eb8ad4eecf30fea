"""`trimtab tables verify`: check that each record is in its table once, as on the broker."""

import json
import random
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from typing import Any, Final

import typer
from rich.progress import Progress

from trimtab.cli.lake_session import load_lake_settings, open_lake_session, select_tables
from trimtab.cli.output_formats import PrintFormat, print_table
from trimtab.cli.plain_console import PlainConsole
from trimtab.cli.tables.options import BrokerComparison, VerifyOptions
from trimtab.cli.terminal import print_line
from trimtab.consumer_sdk.lake.verify import table_verification as checks
from trimtab.consumer_sdk.lake.verify.lake_verification import LakeVerification, TableKindRules
from trimtab.consumer_sdk.lake.verify.topic_log import BrokerTopicLog, build_reader_settings

SAMPLE_WINDOWS: Final = 10  # per partition
SAMPLE_WINDOW_OFFSETS: Final = 500


def verify(options: VerifyOptions) -> None:
    """Verify the tables and print the result. Raises SettingError; typer.Exit if there are faults."""
    config = load_lake_settings(options.config, None)
    rules = TableKindRules.from_config(config)
    sampler = _create_sampler(options.against_broker)
    log: BrokerTopicLog | None = None
    with ExitStack() as stack:
        if options.against_broker is not BrokerComparison.NO:  # first: it fails faster than Spark starts
            log = stack.enter_context(closing(BrokerTopicLog(build_reader_settings(config))))
        lake = stack.enter_context(open_lake_session(config))
        progress = stack.enter_context(_show_progress())
        _use_all_cores(lake.spark, config)
        work = LakeVerification(lake, rules, log, sampler, progress)
        results = list(work.run(select_tables(lake, options.tables)))
    bad = any(table.is_bad(strict=options.strict) for table in results)
    if options.output is PrintFormat.JSON:
        typer.echo(json.dumps({"ok": not bad, "tables": [asdict(v) for v in results]}, indent=2))
    else:
        _print_results(results)
    if bad:
        raise typer.Exit(1)


def _create_sampler(comparison: BrokerComparison) -> checks.RangeSampler | None:
    if comparison is BrokerComparison.SAMPLE:
        # unseeded, so that repeated runs look at other offsets
        draw = random.Random().randrange  # noqa: S311 - not a secret
        return checks.sample_windows(SAMPLE_WINDOWS, SAMPLE_WINDOW_OFFSETS, draw)
    return checks.sample_everything(checks.MAX_READ_OFFSETS) if comparison is BrokerComparison.ALL else None


def _use_all_cores(spark: Any, config: Mapping[str, Any]) -> None:
    name = "spark.sql.shuffle.partitions"
    if name not in config:  # a session for writers has one: their batches are small, whole tables are not
        spark.conf.set(name, spark.sparkContext.defaultParallelism)


@contextmanager
def _show_progress() -> Generator[Callable[[str, int, int], None]]:
    console = PlainConsole(file=sys.stderr)  # standard output holds the result alone, for a pipe
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        tasks = {"": bar.add_task("counting rows", total=None)}

        def update(table: str, done: int, total: int) -> None:
            if table not in tasks:
                tasks[table] = bar.add_task(f"{table}: comparing", total=total)
            bar.update(tasks[table], completed=done, total=total)

        yield update


def _print_results(results: list[checks.TableVerification]) -> None:
    rows: list[tuple[str, ...]] = []
    for table in results:
        for part in table.partitions:
            place = (part.topic, str(part.partition), f"{part.rows:,}")
            offset = "none" if part.committed_offset is None else f"{part.committed_offset:,}"
            rows.append((table.table, table.kind, *place, offset, f"{part.compared:,}", _describe(part)))
        if not table.partitions:
            note = "; ".join(table.notes) or "nothing to verify"
            rows.append((table.table, table.kind, *[""] * 5, note))
    headings = ["table", "kind", "topic", "partition", "rows", "committed", "compared", "result"]
    print_table(headings, rows)
    faults = {fault for table in results for fault in table.faults}
    for fault in (fault for fault in checks.FAULT_ADVICE if fault in faults):
        print_line(f"{fault.replace('_', ' ')}: {checks.FAULT_ADVICE[fault]}")
    if any(part.unknown for table in results for part in table.partitions):
        print_line(f"unknown: {checks.UNKNOWN_ADVICE}")


def _describe(part: checks.PartitionVerification) -> str:
    notes = [_describe_fault(part, fault) for fault in part.faults]
    notes += [f"{part.unknown:,} unknown"] if part.unknown else []
    notes += [f"{part.recorded_gaps:,} recorded as lost to retention"] if part.recorded_gaps else []
    return "; ".join(notes) or "ok"


def _describe_fault(part: checks.PartitionVerification, fault: str) -> str:
    count, some = getattr(part, fault), part.examples.get(fault, [])
    more = ", …" if count > len(some) else ""
    where = f" at {', '.join(map(str, some))}{more}" if some else ""
    return f"{count:,} {fault.replace('_', ' ')}{where}"
