"""`trimtab sidecar`: scales a group; `trimtab sidecar restart` replaces its workers one by one."""

import logging
from pathlib import Path
from threading import Event

from trimtab.cli.logs import log_to_stderr
from trimtab.cli.setting_pairs import parse_pairs
from trimtab.cli.sidecar.options import SidecarAction, SidecarCommandOptions
from trimtab.cli.signals import install_signal_waiter
from trimtab.cli.terminal import print_line
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError, TrimtabError
from trimtab.sidecar.groups.bootstrap import open_group_manager
from trimtab.sidecar.loop.bootstrap import open_control_loop
from trimtab.sidecar.loop.control_loop import ControlLoop
from trimtab.sidecar.settings.group_list import GroupListSettings, load_settings_of_groups
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.process.rolling_restart import request_restart

log = logging.getLogger("trimtab.sidecar")


def sidecar(options: SidecarCommandOptions) -> None:
    """Run the control loop, or request a rolling restart. Raises SettingError."""
    if options.action is SidecarAction.RESTART:
        _request_rolling_restart(options.flags.get("state-dir"))
        return
    flags = {**options.flags, **parse_pairs("--set", options.more)}
    if options.kafka:
        flags["kafka"] = parse_pairs("--kafka", options.kafka)
    settings = load_settings_of_groups(options.config, flags)
    if isinstance(settings, SidecarSettings):
        _run_sidecar(settings)
    else:
        _run_many_groups(settings)


def _run_sidecar(settings: SidecarSettings) -> None:
    log_to_stderr()
    wait = install_signal_waiter()
    with open_control_loop(settings, SystemClock()) as loop:
        loop.run(wait)
        if settings.stop_workers:  # otherwise an upgrade of the sidecar would interrupt the group
            _stop_workers(loop)
        elif settings.target == "process" and not settings.dry_run:
            log.info("workers keep running for the next sidecar (--stop-workers stops them)")


def _run_many_groups(settings: GroupListSettings) -> None:
    log_to_stderr()
    wait = install_signal_waiter()
    with open_group_manager(settings, SystemClock()) as manager:
        manager.run(wait)


def _stop_workers(loop: ControlLoop) -> None:
    # not the signal waiter: a second signal must not cut the wait short
    if not loop.stop_workers(Event().wait):
        raise TrimtabError("some workers did not stop in time; see their logs in --state-dir")


def _request_rolling_restart(state_dir: Path | None) -> None:
    if state_dir is None:
        raise SettingError("restart needs --state-dir, the state folder of the running sidecar")
    names = request_restart(state_dir)
    if not names:
        raise SettingError(f"state folder {state_dir} names no workers; is it the right one?")
    print_line(f"requested the replacement of {', '.join(names)}, one by one")
