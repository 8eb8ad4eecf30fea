"""Control groups of Linux, by which a benchmark gives processes a share of a core. Needs root."""

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 20_000
"""Length of the periods in which the kernel grants a share; short, so that pauses stay below a batch's."""


class CpuLimit:
    """A control group of version 1 or 2; processes started by `wrapper` and their children are in it."""

    def __init__(self) -> None:
        self._unified = (ROOT / "cgroup.controllers").exists()
        self._folder = (ROOT if self._unified else ROOT / "cpu") / f"bench-{uuid.uuid4().hex[:8]}"
        try:
            if self._unified:
                (ROOT / "cgroup.subtree_control").write_text("+cpu")
            self._folder.mkdir()
        except OSError as error:
            sys.exit(f"no control group can be made ({error}): run this benchmark as root, on Linux")

    @property
    def wrapper(self) -> Sequence[str]:
        """A command that runs the one after it in this group."""
        return ("sh", "-c", f'echo $$ > {self._folder}/cgroup.procs && exec "$@"', "sh")

    def limit(self, cores: float) -> None:
        """Limit all processes of the group together to a number of cores, as 0.25."""
        quota = round(cores * PERIOD_US)
        if self._unified:
            (self._folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota))

    def remove(self) -> bool:
        """Remove the group; return False if processes of it are still there."""
        try:
            self._folder.rmdir()
        except OSError:
            return False
        return True
