"""`trimtab ingest` that kills itself at the N-th pass of a flush step: STEP:N, then the arguments."""

import os
import signal
import sys

from trimtab.cli import main as command
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter


def main(where: str, arguments: list[str]) -> None:
    step, _, times = where.partition(":")
    left = int(times)

    def pass_by(name: str) -> None:
        nonlocal left
        left -= name == step
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    LakeWriter._reach_step = staticmethod(pass_by)  # type: ignore[assignment, method-assign]
    sys.exit(command.main(arguments))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
