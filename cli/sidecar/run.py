"""`trimtab sidecar`: steers a group; `trimtab sidecar restart` replaces its workers one by one."""

import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trimtab.cli.sidecar import options
from trimtab.common.errors import SettingError, TrimtabError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.sidecar.control_loop import Loop
    from trimtab.sidecar.settings.settings import Settings

OWN_FLAGS: Final = frozenset({"action", "config", "kafka", "more"})
"""Flags that are no settings themselves."""

log = logging.getLogger("trimtab.sidecar")

EXAMPLES: Final = {"--kafka": "security.protocol=SSL", "--set": "step-out=2"}


class Do(StrEnum):
    """What is asked for."""

    RUN = "run"
    RESTART = "restart"


def sidecar(  # noqa: PLR0913 - typer: one parameter an option
    ctx: typer.Context,
    action: Annotated[
        Do, typer.Argument(help="run, or restart --state …: replace workers one by one.")
    ] = Do.RUN,
    *,
    config: options.Config = None,
    bootstrap: options.Bootstrap = None,
    group: options.Group = None,
    topics: options.Topics = None,
    queue: options.Queue = None,
    capacity: options.Capacity = None,
    headroom: options.Headroom = None,
    heuristic: options.Heuristic = None,
    move_cost: options.MoveCost = None,
    source: options.Source = None,
    window: options.Window = None,
    interval: options.Interval = None,
    least: options.Least = None,
    most: options.Most = None,
    cool_down: options.CoolDown = None,
    stabilise_out: options.StabiliseOut = None,
    stabilise_in: options.StabiliseIn = None,
    target: options.Target = None,
    worker_config: options.WorkerConfig = None,
    state: options.State = None,
    host: options.Host = None,
    port: options.Port = None,
    dry_run: options.DryRun = False,
    take_over: options.TakeOver = False,
    stop_workers: options.StopWorkers = False,
    kafka: options.Kafka = None,
    more: options.More = None,
) -> None:
    """Steer a consumer group: how many consumers, and who reads what.

    SIGTERM ends it; workers go on, and the next sidecar finds them. With --target none it starts
    and stops nobody, but publishes plans that consumers follow; --dry-run changes nothing at all.
    While another sidecar steers the group this one stands by and changes nothing. For example:

        trimtab sidecar --bootstrap localhost:9092 --group lake --capacity "2.3 MB/s" --dry-run

        trimtab sidecar -c sidecar.yaml --target process --worker-config ingest.yaml --state run

        trimtab sidecar -c queue.yaml --queue kmq --min 0 --target process --state run
    """
    del bootstrap, group, topics, queue, capacity, headroom, heuristic, move_cost, source, window
    del interval, least, most, cool_down, stabilise_out, stabilise_in, target, worker_config
    del host, port, dry_run, take_over, stop_workers
    if action is Do.RESTART:
        _restart(state)
        return
    from trimtab.sidecar.settings.settings import load  # noqa: PLC0415 - keeps --help fast

    given = (item for item in ctx.params.items() if item[1] is not False)  # a switch left alone
    flags = {name: value for name, value in given if name not in OWN_FLAGS}
    flags |= {"min": flags.pop("least"), "max": flags.pop("most")} | pairs("--set", more)
    if kafka:
        flags["kafka"] = pairs("--kafka", kafka)
    _run(load(config, flags))


def pairs(flag: str, given: list[str] | None) -> dict[str, Any]:
    """Return name=value pairs, values read as YAML. Raises SettingError, without the value."""
    import yaml  # noqa: PLC0415 - keeps --help fast

    from trimtab.common.kafka_security.secrets import not_shown  # noqa: PLC0415 - as above

    found: dict[str, Any] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingError(f'{flag} needs name=value, like "{EXAMPLES[flag]}"')
        not_shown(flag, name.strip(), value)
        try:
            found[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SettingError(f"{flag} {name.strip()}: the value is not YAML") from None
    return found


def require_group(config: Path | None, bootstrap: str | None, group: str | None) -> None:
    """Raise SettingError unless flags or the file say which group is meant."""
    from trimtab.sidecar.settings.settings import read  # noqa: PLC0415 - keeps --help fast

    known = {**read(config), **({"bootstrap": bootstrap} if bootstrap else {})}
    known |= {"group": group} if group else {}
    missing = [f"--{name}" for name in ("bootstrap", "group") if name not in known]
    if missing:
        raise SettingError(
            f"{' and '.join(missing)} missing; say which group is meant: "
            "--bootstrap host:port --group NAME, or --config FILE"
        )


def _run(settings: "Settings") -> None:
    from trimtab.cli.signals import waiter  # noqa: PLC0415 - as above
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.bootstrap import assembled  # noqa: PLC0415 - as above

    log_to_stderr()
    wait = waiter()
    with assembled(settings, SystemClock()) as loop:
        loop.run(wait)
        if settings.stop_workers:
            _stop_workers(loop)
        elif settings.target == "process" and not settings.dry_run:
            log.info(
                "the workers go on, and the next sidecar finds them (--stop-workers ends them)"
            )


def _stop_workers(loop: "Loop") -> None:
    from threading import Event  # noqa: PLC0415 - keeps --help fast

    patience: Callable[[float], bool] = Event().wait  # a second signal changes nothing
    if not loop.stop_workers(patience):
        raise TrimtabError("some workers did not end in time; see their logs in the state folder")


def _restart(state: Path | None) -> None:
    from trimtab.sidecar.targets.process.rolling_restart import request  # noqa: PLC0415 - keeps --help fast

    if state is None:
        raise SettingError("restart needs --state, the folder of the sidecar that is running")
    names = request(state)
    if not names:
        raise SettingError(f"state folder {state} knows no workers; is it the right one?")
    typer.echo(f"asked for {', '.join(names)} to be replaced, one by one")


def log_to_stderr() -> None:
    """Show our own log, and of the client libraries only what is wrong."""
    form = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=form, datefmt="%H:%M:%S")
    logging.getLogger("trimtab").setLevel(logging.INFO)
