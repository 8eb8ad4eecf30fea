"""`trimtab ingest` that kills itself at a step of a flush: STEP:N, then the command's arguments.

At the N-th time that the step comes by. The command is the product's own.
"""

import os
import signal
import sys
from typing import Any

from trimtab.cli import main as command
from trimtab.consumer_sdk.lake import ingest


def main(where: str, arguments: list[str]) -> None:
    step, _, times = where.partition(":")
    left = int(times)
    run = ingest.run_ingest

    def pass_by(name: str) -> None:
        nonlocal left
        left -= name == step
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def run_to_the_step(*args: Any) -> None:
        run(*args, crash=pass_by)

    ingest.run_ingest = run_to_the_step
    sys.exit(command.main(arguments))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
