"""Commands that never outlive this process, not even its SIGKILL: our side of `guard`."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SPARE_SECONDS: Final = 10.0  # for the guard itself, beyond the grace of what it guards


class Guarded:
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
        self.code: int | None = None  # of the last command, once it has ended
        self.killed = False  # the guard itself is gone
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
        self._guard = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", guard, json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **(environ or {})},
            process_group=0,  # Ctrl-C is for us; we stop it in our own time
        )

    @property
    def ended(self) -> bool:
        """Whether the commands are over, or the guard is gone and took them along."""
        return self.killed or self.code is not None

    def hear(self, seconds: float) -> None:
        """Wait for news for so long at most, and take them in."""
        assert self._guard.stdout is not None
        if self.killed or not select.select([self._guard.stdout], [], [], seconds)[0]:
            return
        match self._guard.stdout.readline().split():
            case [b"pid", pid]:
                self.pid = int(pid)
            case [b"end", code]:
                self.code = int(code)
            case _:
                self.killed = True

    def stop(self) -> None:
        """Stop what runs and wait for its end; may be called twice."""
        guard = self._guard
        assert guard.stdin is not None
        assert guard.stdout is not None
        guard.stdin.close()  # the guard takes it from here
        try:
            guard.wait(self._grace + SPARE_SECONDS)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        while not (self.killed or guard.stdout.closed):
            self.hear(0.0)
        guard.stdout.close()
