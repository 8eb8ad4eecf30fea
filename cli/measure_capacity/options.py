"""The options of `trimtab measure-capacity`."""

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.settings_options import CommandOptions, build_command


class MeasureCapacityOptions(CommandOptions, run="trimtab.cli.measure_capacity.run:measure_capacity"):
    """Measure the throughput that one consumer sustains on this machine, from Kafka to the tables.

    Fills topics, ingests them with the lake settings of --config, and removes topics and tables
    again. The result is the lowest throughput of all cases, for `trimtab.capacity` and the
    sidecar's `capacity`. Measure where the consumers run, with their CPU and memory. For example:

        trimtab measure-capacity --config ingest.yaml --write ingest.yaml

        trimtab measure-capacity --config ingest.yaml --bootstrap kafka:9092

        trimtab measure-capacity --case 3:60:500 --record-size 200
    """

    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Configuration of trimtab ingest.")
    ] = None
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            help="Brokers to fill, with the security settings of --config; default: an embedded broker.",
        ),
    ] = None
    case: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLES:PARTITIONS:MB",
            help="Topics with a table each, all their partitions, and their size; may be repeated. "
            "Default: 1:32:648, 5:116:100 and 5:144:678, as in the paper.",
        ),
    ] = None
    record_size: Annotated[int, typer.Option(min=1, help="Bytes of a record.")] = 1000
    values: Annotated[
        Path | None,
        typer.Option(
            help="File with values of records, one a line, in Base64 for lake.decoder avro and protobuf; "
            "default: random text in JSON."
        ),
    ] = None
    write: Annotated[Path | None, typer.Option(help="Configuration file to write trimtab.capacity into.")] = (
        None
    )


COMMAND = build_command(MeasureCapacityOptions)
