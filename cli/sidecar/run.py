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

    from trimtab.sidecar.control_loop import ControlLoop
    from trimtab.sidecar.settings.settings import SidecarSettings

NON_SETTING_FLAGS: Final = frozenset({"action", "config", "kafka", "more"})
"""Flags that are no settings themselves."""

log = logging.getLogger("trimtab.sidecar")

PAIR_EXAMPLES: Final = {"--kafka": "security.protocol=SSL", "--set": "scale-up-policies=2"}


class SidecarAction(StrEnum):
    """What is asked for."""

    RUN = "run"
    RESTART = "restart"


def sidecar(  # noqa: PLR0913 - typer: one parameter an option
    ctx: typer.Context,
    action: Annotated[
        SidecarAction, typer.Argument(help="run, or restart --state …: replace workers one by one.")
    ] = SidecarAction.RUN,
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
    least: options.MinReplicas = None,
    most: options.MaxReplicas = None,
    cooldown: options.Cooldown = None,
    scale_up_stabilization_window: options.ScaleUpStabilizationWindow = None,
    scale_down_stabilization_window: options.ScaleDownStabilizationWindow = None,
    target: options.Target = None,
    worker_config: options.WorkerConfig = None,
    state: options.StateDir = None,
    host: options.Host = None,
    port: options.Port = None,
    dry_run: options.DryRun = False,
    take_over: options.TakeOver = False,
    stop_workers: options.StopWorkers = False,
    kafka: options.Kafka = None,
    more: options.ExtraSettings = None,
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
    del (
        interval,
        least,
        most,
        cooldown,
        scale_up_stabilization_window,
        scale_down_stabilization_window,
        target,
        worker_config,
    )
    del host, port, dry_run, take_over, stop_workers
    if action is SidecarAction.RESTART:
        _request_restart(state)
        return
    from trimtab.sidecar.settings.settings import load_settings  # noqa: PLC0415 - keeps --help fast

    given = (item for item in ctx.params.items() if item[1] is not False)  # a switch left alone
    flags = {name: value for name, value in given if name not in NON_SETTING_FLAGS}
    flags |= {"min": flags.pop("least"), "max": flags.pop("most")} | parse_pairs("--set", more)
    if kafka:
        flags["kafka"] = parse_pairs("--kafka", kafka)
    _run_sidecar(load_settings(config, flags))


def parse_pairs(flag: str, pairs: list[str] | None) -> dict[str, Any]:
    """Return name=value pairs, values read as YAML. Raises SettingError, without the value."""
    import yaml  # noqa: PLC0415 - keeps --help fast

    from trimtab.common.kafka_security.secrets import reject_secret_argument  # noqa: PLC0415 - as above

    found: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingError(f'{flag} needs name=value, like "{PAIR_EXAMPLES[flag]}"')
        reject_secret_argument(flag, name.strip(), value)
        try:
            found[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SettingError(f"{flag} {name.strip()}: the value is not YAML") from None
    return found


def require_group(config: Path | None, bootstrap: str | None, group: str | None) -> None:
    """Raise SettingError unless flags or the file say which group is meant."""
    from trimtab.sidecar.settings.settings import read_settings_file  # noqa: PLC0415 - keeps --help fast

    known = {**read_settings_file(config), **({"bootstrap": bootstrap} if bootstrap else {})}
    known |= {"group": group} if group else {}
    missing = [f"--{name}" for name in ("bootstrap", "group") if name not in known]
    if missing:
        raise SettingError(
            f"{' and '.join(missing)} missing; say which group is meant: "
            "--bootstrap host:port --group NAME, or --config FILE"
        )


def _run_sidecar(settings: "SidecarSettings") -> None:
    from trimtab.cli.signals import install_signal_waiter  # noqa: PLC0415 - as above
    from trimtab.common.clock import SystemClock  # noqa: PLC0415 - keeps --help fast
    from trimtab.sidecar.bootstrap import open_control_loop  # noqa: PLC0415 - as above

    log_to_stderr()
    wait = install_signal_waiter()
    with open_control_loop(settings, SystemClock()) as loop:
        loop.run(wait)
        if settings.stop_workers:
            _stop_workers(loop)
        elif settings.target == "process" and not settings.dry_run:
            log.info(
                "the workers go on, and the next sidecar finds them (--stop-workers ends them)"
            )


def _stop_workers(loop: "ControlLoop") -> None:
    from threading import Event  # noqa: PLC0415 - keeps --help fast

    patience: Callable[[float], bool] = Event().wait  # a second signal changes nothing
    if not loop.stop_workers(patience):
        raise TrimtabError("some workers did not end in time; see their logs in the state folder")


def _request_restart(state_dir: Path | None) -> None:
    from trimtab.sidecar.targets.process.rolling_restart import request_restart  # noqa: PLC0415 - keeps --help fast

    if state_dir is None:
        raise SettingError("restart needs --state, the folder of the sidecar that is running")
    names = request_restart(state_dir)
    if not names:
        raise SettingError(f"state folder {state_dir} knows no workers; is it the right one?")
    typer.echo(f"asked for {', '.join(names)} to be replaced, one by one")


def log_to_stderr() -> None:
    """Show our own log, and of the client libraries only what is wrong."""
    form = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=form, datefmt="%H:%M:%S")
    logging.getLogger("trimtab").setLevel(logging.INFO)
