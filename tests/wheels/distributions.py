"""The files in `dist/`: the source distribution, and wheels as auditwheel leaves them."""

import os
import shutil
import tarfile
from pathlib import Path
from typing import Final

from wheels.commands import BIN, ROOT, UV, run

DIST: Final = ROOT / "dist"


def build_source_distribution(folder: Path) -> Path:
    """Build the source distribution into `dist/`; empty the folder and unpack it into `source` there."""
    shutil.rmtree(folder, ignore_errors=True)
    draft = folder / "sdist"
    draft.mkdir(parents=True)
    run(UV, "build", "-q", "--system-certs", "--sdist", "--out-dir", draft)
    (sdist,) = draft.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (folder / sdist.name.removesuffix(".tar.gz")).rename(folder / "source")
    DIST.mkdir(exist_ok=True)
    return sdist.rename(DIST / sdist.name)


def repair_wheel(raw: Path, tools: Path) -> Path:
    """Give a wheel the oldest manylinux tag that its symbols allow, and strip it with the tools' `strip`."""
    done = raw.parent / "repaired"
    path = os.pathsep.join(map(str, (tools, BIN, os.environ["PATH"])))
    run(BIN / "auditwheel", "repair", "--strip", "-w", done, raw, PATH=path)
    (wheel,) = done.glob("*.whl")
    DIST.mkdir(exist_ok=True)
    return wheel.rename(DIST / wheel.name)
