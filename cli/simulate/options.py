"""Options of `trimtab simulate`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from trimtab.cli.output_formats import PrintFormat

GENERATED_PANEL: str = "Made-up streams"
CONSUMERS_PANEL: str = "Consumers"
RESULT_PANEL: str = "Result"


MoreHeuristicNames: TypeAlias = Annotated[
    list[str] | None, typer.Argument(help="More heuristics, after --heuristic.", metavar="NAME")
]
StreamPath: TypeAlias = Annotated[
    Path | None,
    typer.Option(help='JSON list of ticks, each {"topic": {"partition": bytes/s}}; "-" is standard input.'),
]
HeuristicNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Repeat it, or list names; by default all that can count. Besides those of `trimtab "
        'heuristics`: range, keda, keda:sticky; "all" is everybody.',
    ),
]
RandomWalkStep: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="δ",
        help="Random walk: the largest step, in percent of the capacity.",
        rich_help_panel=GENERATED_PANEL,
    ),
]
ZipfFlag: TypeAlias = Annotated[
    bool, typer.Option("--zipf", help="Skewed, with a daily wave.", rich_help_panel=GENERATED_PANEL)
]
FlashCrowdFlag: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--flash-crowd",
        help="Now and then some partitions write several times as much.",
        rich_help_panel=GENERATED_PANEL,
    ),
]
OversizeFlag: TypeAlias = Annotated[
    bool,
    typer.Option("--oversize", help="Partitions of up to 2.5 capacities.", rich_help_panel=GENERATED_PANEL),
]
ShapeValues: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="name=value",
        help="Of --zipf, --flash-crowd or --oversize, as exponent=0.9.",
        rich_help_panel=GENERATED_PANEL,
    ),
]
PartitionCount: TypeAlias = Annotated[int, typer.Option(min=1, rich_help_panel=GENERATED_PANEL)]
TickCount: TypeAlias = Annotated[int, typer.Option(min=1, rich_help_panel=GENERATED_PANEL)]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="The first one.", rich_help_panel=GENERATED_PANEL)]
Seeds: TypeAlias = Annotated[
    int, typer.Option(min=1, help="So many streams.", rich_help_panel=GENERATED_PANEL)
]
Unclamped: TypeAlias = Annotated[
    bool,
    typer.Option("--unclamped", help="Let speeds grow beyond the capacity.", rich_help_panel=GENERATED_PANEL),
]
Save: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write the (first) stream to this file.", rich_help_panel=GENERATED_PANEL)
]
SimulatedCapacity: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help='Of one consumer: "2.3 MB/s"; 100 for a made-up stream.', rich_help_panel=CONSUMERS_PANEL
    ),
]
HeadroomShare: TypeAlias = Annotated[
    float, typer.Option(help="Share of it that a heuristic fills.", rich_help_panel=CONSUMERS_PANEL)
]
TickLength: TypeAlias = Annotated[
    str, typer.Option(help="What a tick of the stream lasts.", rich_help_panel=CONSUMERS_PANEL)
]
Pause: TypeAlias = Annotated[
    str, typer.Option(help="A moved partition is not read for so long.", rich_help_panel=CONSUMERS_PANEL)
]
LateAfter: TypeAlias = Annotated[
    str,
    typer.Option(help="Bytes are late behind ones that have waited longer.", rich_help_panel=CONSUMERS_PANEL),
]
LagThreshold: TypeAlias = Annotated[
    str,
    typer.Option(
        "--lag-threshold",
        help="Of keda: lag that one replica may have, in seconds of its capacity.",
        rich_help_panel=CONSUMERS_PANEL,
    ),
]
BaselineNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Compare R with these at equal or lower CBS; several streams: mwf, mbf, mbfp.",
        rich_help_panel=RESULT_PANEL,
    ),
]
Recommend: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--recommend",
        help="Try headrooms from 0.7 to 1 and say which setting to take.",
        rich_help_panel=RESULT_PANEL,
    ),
]
LateLimit: TypeAlias = Annotated[
    float,
    typer.Option(
        min=0, max=100, help="Percent of late traffic that is all right.", rich_help_panel=RESULT_PANEL
    ),
]
FindingsFormat: TypeAlias = Annotated[
    PrintFormat, typer.Option("--format", help="How to print it.", rich_help_panel=RESULT_PANEL)
]
HtmlReport: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write a report with plots here.", rich_help_panel=RESULT_PANEL)
]
CoreCount: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Cores to use; all.", rich_help_panel=RESULT_PANEL)
]
