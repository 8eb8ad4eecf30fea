"""Commands that end with this process, even by SIGKILL. See `supervisor.py`."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SUPERVISOR_STOP_MARGIN_S: Final = 10.0  # beyond the command's grace, to delete the folder


class SupervisedProcess:
    """Runs commands one after the other under a supervisor; starts when constructed.

    Appends their output to `log`. On stop a command gets SIGTERM and `grace` seconds, then SIGKILL
    (0: at once). Finally the folder `remove` is deleted.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        log: Path,
        grace: float,
        remove: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.pid = 0  # of the running command, once known
        self.exit_code: int | None = None  # of the last command, once it has ended
        self.supervisor_killed = False  # the supervisor is gone
        self._grace = grace
        task = {
            "commands": [list(command) for command in commands],
            "grace": grace,
            "log": str(log),
            "parent": os.getpid(),
            "remove": str(remove or ""),
        }
        # a process group, not a session: Linux schedules by session (autogroup), and starved a
        # broker in its own session for up to 38 s beside a busy one
        script = str(Path(__file__).with_name("supervisor.py"))
        self._supervisor = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", script, json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **(environ or {})},
            process_group=0,  # Ctrl-C reaches only us, and we stop it in order
        )

    @property
    def has_ended(self) -> bool:
        """Whether the commands have ended, or the supervisor is gone and killed them."""
        return self.supervisor_killed or self.exit_code is not None

    def read_status(self, seconds: float) -> None:
        """Wait up to `seconds` for a status line and apply it."""
        assert self._supervisor.stdout is not None
        if self.supervisor_killed or not select.select([self._supervisor.stdout], [], [], seconds)[0]:
            return
        match self._supervisor.stdout.readline().split():
            case [b"pid", pid]:
                self.pid = int(pid)
            case [b"end", code]:
                self.exit_code = int(code)
            case _:
                self.supervisor_killed = True

    def stop(self) -> None:
        """Stop the command and wait for its end. Idempotent."""
        supervisor = self._supervisor
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        supervisor.stdin.close()  # its signal to stop the command
        try:
            supervisor.wait(self._grace + SUPERVISOR_STOP_MARGIN_S)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        while not (self.supervisor_killed or supervisor.stdout.closed):
            self.read_status(0.0)
        supervisor.stdout.close()
