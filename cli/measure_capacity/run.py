"""`trimtab measure-capacity`: measures one consumer from Kafka to the tables, and prints its capacity."""

import json
import logging
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.measure_capacity import capacity_settings
from trimtab.cli.measure_capacity.capacity_settings import CAPACITY_SETTING, CapacityCase
from trimtab.cli.measure_capacity.measurement import CapacityRig, CaseThroughput, make_values
from trimtab.cli.measure_capacity.options import MeasureCapacityOptions
from trimtab.cli.output_formats import print_table
from trimtab.cli.terminal import print_line
from trimtab.common.clock import SystemClock
from trimtab.common.kafka_security.preflight import check_connection
from trimtab.common.settings.config_file import load_config_file, read_config_file
from trimtab.common.units import format_bytes, format_rate
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.options.connection import extract_connection_settings
from trimtab.consumer_sdk.lake.options.settings import parse_session_config
from trimtab.consumer_sdk.lake.session.factory import open_lake
from trimtab.consumer_sdk.lake.spark.gateway import java_packages, java_session

# Classes load and code is compiled: the first megabytes take several times as long as the others.
WARM_UP: Final = CapacityCase(tables=1, partitions=4, size=70_000_000)


def measure_capacity(options: MeasureCapacityOptions) -> None:
    """Measure all cases; print the lowest throughput as `trimtab.capacity`. Raises SettingError."""
    cases = capacity_settings.parse_cases(options.case)
    given = load_config_file(options.config) if options.config else {}
    values = capacity_settings.read_values(options.values, given)
    if options.write is not None:
        read_config_file(options.write)  # before the measurement, which takes minutes
    # without a sidecar each join would warn that no write rate is known
    logging.getLogger("trimtab.assignor").setLevel(logging.ERROR)
    with ExitStack() as stack:
        rig = _open_rig(options, given, stack)
        results = measure_cases(rig, cases, values or make_values(options.record_size))
    capacity = format_rate(min(result.rate for result in results))
    _print_results(results)
    print_line(f"{CAPACITY_SETTING}: {capacity}")
    if options.write is not None:
        capacity_settings.write_capacity(options.write, capacity)
        print_line(f"written to {options.write}", err=True)
    print_line(f"RESULT {json.dumps(build_result(results))}")


def measure_cases(
    rig: CapacityRig, cases: Sequence[CapacityCase], values: Sequence[bytes]
) -> list[CaseThroughput]:
    """Warm up and measure the cases, one after the other."""
    rig.measure_case(WARM_UP, values, "warm-up")
    return [rig.measure_case(case, values, f"case-{number}") for number, case in enumerate(cases, 1)]


def build_result(results: Sequence[CaseThroughput]) -> dict[str, Any]:
    """Return the figures of the RESULT line."""
    return {
        "capacity_bytes_per_s": round(min(result.rate for result in results)),
        "cases": {
            str(result.case): {"seconds": round(result.seconds, 2), "bytes_per_s": round(result.rate)}
            for result in results
        },
    }


def _open_rig(options: MeasureCapacityOptions, given: Mapping[str, Any], stack: ExitStack) -> CapacityRig:
    name = f"trimtab-capacity-{uuid.uuid4().hex[:8]}"  # noqa: TID251 - two processes must never choose alike
    local = capacity_settings.find_local_warehouse(given)
    folder = stack.enter_context(_scratch_folder(local))
    namespace = name.replace("-", "_")
    is_embedded = options.bootstrap is None
    config = capacity_settings.build_ingest_config(given, namespace, folder, is_embedded=is_embedded)
    session = parse_session_config(config)
    config["bootstrap.servers"] = options.bootstrap or stack.enter_context(EmbeddedBroker()).bootstrap
    client = extract_connection_settings(config, "give --bootstrap")
    check_connection(client)  # librdkafka retries a refused login for ever
    lake = open_lake(session, warm_up=True)
    stack.callback(lake.close)
    if capacity_settings.has_catalog(given):  # a local folder is removed whole
        stack.callback(drop_tables, lake, namespace)
    elif capacity_settings.is_remote(given):
        stack.callback(remove_folder, lake, f"{str(given['lake.warehouse']).rstrip('/')}/{namespace}")
    return CapacityRig(config, client, lake, name, SystemClock(), _report)


def _scratch_folder(local: Path | None) -> "tempfile.TemporaryDirectory[str]":
    if local is not None:  # beside the tables: the same disk
        local.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="trimtab-capacity-", dir=local and local.parent)


def drop_tables(lake: SparkLake, namespace: str) -> None:
    """Drop the tables of a namespace with their files."""
    for table in lake.list_tables():
        if table.startswith(f"{namespace}."):
            lake.spark.sql(f"DROP TABLE {table} PURGE")
    lake.spark.sql(f"DROP NAMESPACE IF EXISTS {namespace}")


def remove_folder(lake: SparkLake, address: str) -> None:
    """Remove the tables of a namespace of Delta, which are folders, from any storage."""
    path = java_packages(lake.spark).org.apache.hadoop.fs.Path(address)
    path.getFileSystem(java_session(lake.spark).sessionState().newHadoopConf()).delete(path, True)  # noqa: FBT003 - Java's signature


def _report(line: str) -> None:
    print_line(line, err=True)


def _print_results(results: Sequence[CaseThroughput]) -> None:
    headings = ("tables", "partitions", "backlog", "per partition", "seconds", "throughput")
    print_table(headings, [_format_row(result) for result in results])


def _format_row(result: CaseThroughput) -> tuple[str, ...]:
    case, per_partition = result.case, result.size / result.case.partitions
    sizes = (format_bytes(result.size), format_bytes(per_partition))
    return (str(case.tables), str(case.partitions), *sizes, f"{result.seconds:.1f}", format_rate(result.rate))
