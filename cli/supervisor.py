"""Supervisor process between Trimtab and its commands: neither outlives Trimtab.

1. Standard input ends when the parent is gone; then the command is stopped and `remove` deleted.
2. If the supervisor itself is killed, the kernel kills the command (Linux).
3. Status lines on standard output: "pid N" when a command has started, "end CODE" when the last
   one has ended.
4. The folder stays until standard input ends, so that the parent can read the log in it.

Run by path with one JSON argument; it imports the standard library only. `SupervisedProcess` is the
parent's side.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1
PARENT_POLL_S: Final = 0.1  # between two checks of the command


def main(task: dict[str, Any]) -> None:
    """Run the commands one after the other until one fails or the parent is gone."""
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        code = 0
        gone = False
        for command in task["commands"]:
            code, gone = _run_command(command, task)
            if code or gone:
                break
        _write_status(f"end {code}")
        while not gone:
            gone = _parent_gone(task["parent"])
    finally:
        if task["remove"]:
            shutil.rmtree(task["remove"], ignore_errors=True)


def _exit_on_signal(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)  # runs the `finally` blocks


def _run_command(command: list[str], task: dict[str, Any]) -> tuple[int, bool]:
    """Return the command's exit code, and whether the parent is gone."""
    with (
        Path(task["log"]).open("ab") as log,
        subprocess.Popen(  # noqa: S603 - the parent's command
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_kill_with_parent(),  # noqa: PLW1509 - this process has one thread
        ) as child,
    ):
        gone = False
        try:
            _write_status(f"pid {child.pid}")
            while child.poll() is None and not gone:
                gone = _parent_gone(task["parent"])
        finally:
            _stop_child(child, task["grace"])
        return child.wait(), gone


def _stop_child(child: "subprocess.Popen[bytes]", grace: float) -> None:
    if child.poll() is None and grace:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)
    if child.poll() is None:
        child.kill()


def _parent_gone(parent: int) -> bool:
    # a dead parent's pipe is closed, unless another process inherited its end; then the ppid changes
    readable, _, _ = select.select([sys.stdin], [], [], PARENT_POLL_S)
    ended = bool(readable) and not os.read(sys.stdin.fileno(), 4096)
    return ended or os.getppid() != parent


def _kill_with_parent() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    # the kernel kills the child with this process, even by SIGKILL
    return lambda: libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL)) and None


def _write_status(line: str) -> None:
    with contextlib.suppress(OSError):  # the parent is gone
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
