"""Commands that never outlive this process, not even its SIGKILL: our side of `guard`."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SUPERVISOR_STOP_MARGIN_S: Final = 10.0  # for the guard itself, beyond the grace of what it guards


class SupervisedProcess:
    """Commands that run one after the other, under a guard, from the moment this is made.

    They write to the end of `log`. When they are stopped they have `grace` seconds to obey SIGTERM,
    with 0 they are killed at once; then the folder `remove` is removed. `environ` is added to our
    own environment.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        log: Path,
        grace: float,
        remove: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.pid = 0  # of the command that runs, once it is told
        self.exit_code: int | None = None  # of the last command, once it has ended
        self.supervisor_killed = False  # the guard itself is gone
        self._grace = grace
        task = {
            "commands": [list(command) for command in commands],
            "grace": grace,
            "log": str(log),
            "parent": os.getpid(),
            "remove": str(remove or ""),
        }
        # a group and no session: Linux shares the cores out by session (autogroup), and beside a
        # busy one gave a broker with one of its own none at all for up to 38 s
        guard = str(Path(__file__).with_name("supervisor.py"))
        self._supervisor = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", guard, json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **(environ or {})},
            process_group=0,  # Ctrl-C is for us; we stop it in our own time
        )

    @property
    def has_ended(self) -> bool:
        """Whether the commands are over, or the guard is gone and took them along."""
        return self.supervisor_killed or self.exit_code is not None

    def read_status(self, seconds: float) -> None:
        """Wait for news for so long at most, and take them in."""
        assert self._supervisor.stdout is not None
        if (
            self.supervisor_killed
            or not select.select([self._supervisor.stdout], [], [], seconds)[0]
        ):
            return
        match self._supervisor.stdout.readline().split():
            case [b"pid", pid]:
                self.pid = int(pid)
            case [b"end", code]:
                self.exit_code = int(code)
            case _:
                self.supervisor_killed = True

    def stop(self) -> None:
        """Stop what runs and wait for its end; may be called twice."""
        guard = self._supervisor
        assert guard.stdin is not None
        assert guard.stdout is not None
        guard.stdin.close()  # the guard takes it from here
        try:
            guard.wait(self._grace + SUPERVISOR_STOP_MARGIN_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        while not (self.supervisor_killed or guard.stdout.closed):
            self.read_status(0.0)
        guard.stdout.close()
