"""The options of `trimtab sidecar`, named as the settings in `sidecar.settings`."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Config: TypeAlias = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file of settings; flags win.")
]
Bootstrap: TypeAlias = Annotated[str | None, typer.Option(help="host:port of brokers.")]
Group: TypeAlias = Annotated[str | None, typer.Option(help="The consumer group to steer.")]
Topics: TypeAlias = Annotated[
    str | None,
    typer.Option(help='Names with commas, or "^pattern"; by default what the group reads.'),
]
Queue: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The topic is a queue of this kind: kmq, ordered or share (docs/queues.md)."),
]
Capacity: TypeAlias = Annotated[
    str | None,
    typer.Option(help='What one consumer sustains, end to end: "2.3 MB/s"; no unit: bytes/s.'),
]
Headroom: TypeAlias = Annotated[float | None, typer.Option(help="Share of it to fill; 0.9.")]
Heuristic: TypeAlias = Annotated[str | None, typer.Option(help="See `trimtab heuristics`; steady.")]
MoveCost: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Tunes steady: how long you would keep one consumer more rather than move one "
        'consumer\'s load; "15 s" is what balanced does.'
    ),
]
Source: TypeAlias = Annotated[str | None, typer.Option(help="offsets (default) or log-dirs.")]
Window: TypeAlias = Annotated[str | None, typer.Option(help='Of the write speed; "30 s".')]
Interval: TypeAlias = Annotated[str | None, typer.Option(help='Between decisions; "10 s".')]
MinReplicas: TypeAlias = Annotated[
    int | None,
    typer.Option("--min", help="Fewest replicas; 1. With 0 none runs while nothing is to be read."),
]
MaxReplicas: TypeAlias = Annotated[int | None, typer.Option("--max", help="Most replicas; 10.")]
Cooldown: TypeAlias = Annotated[
    str | None, typer.Option(help='Between changes of one\'s own accord; "30 s".')
]
ScaleUpStabilizationWindow: TypeAlias = Annotated[
    str | None, typer.Option(help='More must be wanted for so long; "0 s".')
]
ScaleDownStabilizationWindow: TypeAlias = Annotated[
    str | None, typer.Option(help='Less must do for so long; "120 s".')
]
Target: TypeAlias = Annotated[
    str | None,
    typer.Option(help="none (default; still publishes placements), process, kubernetes or keda."),
]
WorkerConfig: TypeAlias = Annotated[
    Path | None, typer.Option(help="Settings of `trimtab ingest`, for target process.")
]
StateDir: TypeAlias = Annotated[
    Path | None, typer.Option(help="Folder for pids and logs of the workers.")
]
Host: TypeAlias = Annotated[str | None, typer.Option(help="Of the web page; 127.0.0.1.")]
Port: TypeAlias = Annotated[int | None, typer.Option(help="Of the web page; 0: a free one.")]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done; publish and change nothing.")
]
TakeOver: TypeAlias = Annotated[
    bool,
    typer.Option("--take-over", help="Do not stand by while another sidecar steers the group."),
]
StopWorkers: TypeAlias = Annotated[
    bool, typer.Option("--stop-workers", help="On SIGTERM stop the workers too.")
]
Kafka: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="librdkafka's name=value; a secret as ${file:…} or ${env:…}."),
]
ExtraSettings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any other setting, name=value: pause=in, scale-up-policies=2, fallback=…"
    ),
]
