"""`trimtab demo`: the whole path on real components, with a final proof."""

import typer

from trimtab.cli.demo.options import DemoOptions
from trimtab.cli.demo.queue_demo import run_queue_demo
from trimtab.cli.setting_pairs import parse_pairs
from trimtab.common.errors import SettingError


def demo(options: DemoOptions) -> None:
    """Run the demo. Raises SettingError, DemoFailedError; typer.Exit if the proof fails."""
    if options.kafka and options.bootstrap is None:
        raise SettingError("--kafka says how a broker is reached; name it with --bootstrap")
    client = parse_pairs("--kafka", options.kafka)
    client |= {} if options.bootstrap is None else {"bootstrap.servers": options.bootstrap}
    if options.queue is None:
        # not at the top: pyspark is an extra that --queue does without
        from trimtab.cli.demo.runner import run_demo  # noqa: PLC0415

        proved = run_demo(options, client)
    else:
        proved = run_queue_demo(options.queue, client)
    if not proved:
        raise typer.Exit(1)
