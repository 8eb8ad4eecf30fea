"""The options of `trimtab plan`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from trimtab.cli.sidecar import options

ExtraHeuristics: TypeAlias = Annotated[
    list[str] | None, typer.Argument(help="More heuristics, after --heuristic.", metavar="NAME")
]
Bootstrap: TypeAlias = options.Bootstrap
Group: TypeAlias = Annotated[str | None, typer.Option(help="The consumer group.")]
Topics: TypeAlias = options.Topics
Capacity: TypeAlias = Annotated[
    str | None, typer.Option(help='Of one consumer: "2.3 MB/s"; by default the plan\'s.')
]
Headroom: TypeAlias = options.Headroom
Heuristic: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help='Repeat it, or list names; by default "all".'),
]
Seconds: TypeAlias = Annotated[str, typer.Option(help="To measure, if no sidecar did.")]
Source: TypeAlias = Annotated[str | None, typer.Option(help="offsets (default) or log-dirs.")]
Config: TypeAlias = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file of a sidecar's settings.")
]
Kafka: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="librdkafka's name=value; a secret as ${file:…} or ${env:…}."),
]
Certify: TypeAlias = Annotated[
    bool, typer.Option("--certify", help="Tell how far each is from the optimum, at most.")
]
TimeLimit: TypeAlias = Annotated[
    str | None, typer.Option(help='For --certify; "10 s"; a bound holds anyway.')
]
MoveCost: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Tunes steady: how long you would keep one consumer more rather than move one "
        'consumer\'s load; "15 s" is what balanced does.'
    ),
]
