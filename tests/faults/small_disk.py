"""File systems so small that a fault fills them."""

import logging
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

log = logging.getLogger("faults")


def mount_small_disk(folder: Path, size: str, stack: ExitStack) -> Path | None:
    """Mount a small file system at a folder; return the folder, None if not permitted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        log.warning("%s is no file system of its own (needs root): no full disk", folder)
        return None
    stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
    return folder
