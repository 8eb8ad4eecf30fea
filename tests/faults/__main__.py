"""Fault injection into real processes; see tests/README.md.

    python -m faults --faults 1000 --seed 1

A round injects some dozen faults under traffic, waits until the system settles, and checks every
record and every owner. Broker, consumers and JVMs live on from round to round; each round has its
own topic and table. The last line is RESULT {json}; the exit code is 1 on a violation.
"""

import json
import signal
import sys
from argparse import ArgumentParser, Namespace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from faults.run import Run, RunOptions
from faults.settings import LAYOUTS

ROUND = 40


def main() -> int:
    options = _options(_arguments())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up as after Ctrl-C
    console = Console(stderr=True)
    columns = (
        TextColumn("faults, seed {task.fields[seed]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as progress, Run(options) as run:
        bar = progress.add_task("", total=options.faults, seed=options.seed)
        console.print(f"logs in {run.folder}")

        def show(done: int, line: str) -> None:
            progress.update(bar, completed=min(done, options.faults), description=line)

        tally = run.go(show, console.print)
    case = {name: getattr(options, name) for name in ("store", "write", "format", "stage", "seed")}
    print("RESULT " + json.dumps({**case, **tally.figures()}))  # noqa: T201 - the program's answer
    return 0 if tally.good else 1


def _arguments() -> Namespace:
    parser = ArgumentParser(description="inject faults into real processes and check every record")
    parser.add_argument("--faults", type=int, default=1000, help="number of faults")
    parser.add_argument("--seed", type=int, default=1, help="seed of the schedule")
    parser.add_argument("--round", type=int, help="faults in a round; 40, fewer in a short run")
    parser.add_argument("--first", type=int, default=0, help="number of the first round, to replay it")
    parser.add_argument("--format", choices=["iceberg", "delta"], default="iceberg")
    parser.add_argument("--stage", choices=["auto", "spark", "arrow"], default="auto")
    parser.add_argument(
        "--isolation", choices=["read_committed", "read_uncommitted"], default="read_committed"
    )
    parser.add_argument(
        "--catalog", choices=["embedded", "rest"], default="embedded", help="of Iceberg tables on disk"
    )
    parser.add_argument(
        "--store", choices=["disk", "s3"], default="disk", help="s3: the tables on versitygw, Iceberg by REST"
    )
    parser.add_argument(
        "--write", choices=["append", "upsert"], default="append", help="upsert: records are changes by key"
    )
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1)
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic", help="of the group")
    parser.add_argument("--only", action="append", help="kinds of fault; default: all")
    parser.add_argument("--keep", action="store_true", help="keep logs and tables")
    arguments = parser.parse_args()
    if arguments.store == "s3" and arguments.catalog == "rest":  # consumers and checks would use one each
        parser.error("--store s3 has a REST catalog of its own: leave --catalog out")
    return arguments


def _options(arguments: Namespace) -> RunOptions:
    turns = max(2, len(LAYOUTS[arguments.write]))  # with a sidecar and without one, and every layout
    size = arguments.round or max(1, min(ROUND, arguments.faults // turns))
    only = tuple(arguments.only or ())
    return RunOptions(
        arguments.faults,
        arguments.seed,
        size,
        arguments.format,
        arguments.stage,
        arguments.isolation,
        arguments.catalog,
        arguments.brokers,
        arguments.protocol,
        only,
        keep=arguments.keep,
        store=arguments.store,
        first=arguments.first,
        write=arguments.write,
    )


if __name__ == "__main__":
    sys.exit(main())
