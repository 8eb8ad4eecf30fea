"""Programs that `make wheels` runs: their output is shown if they fail."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BIN: Final = Path(sys.executable).parent
UV: Final = str(BIN / "uv")


def run(*command: object, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return its output; ends the program with that output if the command fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} exits with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def find_python(request: str) -> str | None:
    """Return the interpreter of a version, or of a path; None where this machine has none."""
    command = [UV, "python", "find", "--no-python-downloads", "--system", request]
    # pyenv has only the shims of its chosen versions on PATH
    folders = [str(folder) for folder in Path.home().glob(".pyenv/versions/*/bin")]
    environment = {**os.environ, "PATH": os.pathsep.join([*folders, os.environ["PATH"]])}
    found = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    return found.stdout.strip() or None
