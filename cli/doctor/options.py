"""The options of `trimtab doctor`."""

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.output_formats import FormatOption, PrintFormat
from trimtab.cli.settings_options import GroupOptions, build_command


class DoctorOptions(GroupOptions, run="trimtab.cli.doctor.run:doctor", settings=("topics",)):
    """Check brokers, rights, topics, clocks, sidecar, tables and Kubernetes.

    Give it the sidecar's settings and run it where the sidecar runs, so that it has its rights.
    Nothing is changed. The exit code is 1 if a check fails. For example:

        trimtab doctor --bootstrap localhost:9092 --group lake

        trimtab doctor --config sidecar.yaml --ingest ingest.yaml --format json
    """

    ingest: Annotated[
        Path | None, typer.Option(help="Configuration of trimtab ingest: checks its tables, too.")
    ] = None
    output: FormatOption = PrintFormat.TEXT


COMMAND = build_command(DoctorOptions)
