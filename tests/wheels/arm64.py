"""`make wheels-arm64`: a wheel for arm64, compiled on this machine and used under QEMU.

It needs Debian and its packages gcc-aarch64-linux-gnu and qemu-user-static. The wheel is for the Python of
this Debian; those for other versions are built on a machine of that processor, by `make wheels`.

1. setuptools runs on this machine's Python of the same version, with build settings and compiler of arm64.
2. auditwheel gives the wheel the oldest manylinux tag that its symbols allow.
3. The wheel is unpacked beside the arm64 wheels of what it needs, and used by Debian's Python for arm64:
   it places partitions, opens a consumer and runs commands.

The last line is RESULT {"wheel": ..., "mb": ..., "machine": "aarch64", "commands": ...}.
"""

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Final

from wheels.bare_environment import COMMANDS, USE
from wheels.commands import ROOT, UV, find_python, run
from wheels.debian_arm64 import QEMU, ForeignPython, unpack_python
from wheels.distributions import build_source_distribution, repair_wheel

BUILD: Final = ROOT / "build" / "wheels-arm64"
COMPILER: Final = "aarch64-linux-gnu-gcc"
STRIP: Final = "aarch64-linux-gnu-strip"
PROGRAMS: Final = {COMPILER: "gcc-aarch64-linux-gnu", QEMU: "qemu-user-static", "apt-get": "apt"}
BUILD_WHEEL: Final = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"
FIND_SITE: Final = "import sys; sys.prefix = {site!r}; sys.path.insert(0, sys.prefix)\n"
RUN_COMMAND: Final = (
    "import runpy; sys.argv[1:] = {words!r}; runpy.run_module('trimtab.cli', None, '__main__', True)"
)


def cross_compile(foreign: ForeignPython, host: str) -> Path:
    """Build a wheel of the unpacked source distribution with this machine's Python of the same version."""
    environment, settings, draft = (BUILD / name for name in ("environment", "settings", "draft"))
    with (BUILD / "source" / "pyproject.toml").open("rb") as file:
        tools = tomllib.load(file)["build-system"]["requires"]
    run(UV, "venv", "-q", "--python", host, environment)
    pinned = ("-c", ROOT / "constraints.txt")  # and their hashes
    run(UV, "pip", "install", "-q", "--system-certs", *pinned, "--python", environment, *tools)
    settings.mkdir()
    shutil.copy(foreign.build_settings, settings)
    run(
        environment / "bin" / "python",
        "-c",
        BUILD_WHEEL,
        draft,
        cwd=BUILD / "source",
        PYTHONPATH=str(settings),
        _PYTHON_HOST_PLATFORM="linux-aarch64",  # as CPython's own cross build sets both
        _PYTHON_SYSCONFIGDATA_NAME=foreign.build_settings.stem,
        CC=COMPILER,
        LDSHARED=f"{COMPILER} -shared",
        CFLAGS=" ".join(f"-I{folder}" for folder in foreign.include_folders),
    )
    (wheel,) = draft.glob("*.whl")
    return wheel


def link_strip() -> Path:
    """Return a folder whose `strip` is that of arm64, which auditwheel calls by its plain name."""
    folder = BUILD / "tools"
    folder.mkdir()
    (folder / "strip").symlink_to(str(shutil.which(STRIP)))
    return folder


def unpack_wheel(wheel: Path, version: str) -> Path:
    """Unpack the wheel and the arm64 wheels of what it needs into a folder."""
    site = BUILD / "site"
    platform = ("--python-platform", "aarch64-manylinux_2_28", "--python-version", version)
    flags = ("-q", "--system-certs", "--only-binary", ":all:", *platform)
    run(UV, "pip", "install", *flags, "--target", site, wheel)
    return site


def use_wheel(foreign: ForeignPython, site: Path) -> str:
    """Use the wheel as `make wheels` does; return the processor's name."""
    found = FIND_SITE.format(site=str(site))
    for words in COMMANDS:
        foreign.run("-I", "-c", found + RUN_COMMAND.format(words=words))
    return foreign.run("-I", "-c", f"{found}{USE}\nimport platform; print(platform.machine())").strip()


def main() -> None:
    if lacking := {package for program, package in PROGRAMS.items() if shutil.which(program) is None}:
        sys.exit(f"install {', '.join(sorted(lacking))}, packages of Debian")
    build_source_distribution(BUILD)
    foreign = unpack_python(BUILD / "python")
    host = find_python(foreign.version)
    if host is None:
        sys.exit(f"Python {foreign.version}, which Debian has for arm64, is not installed here")
    wheel = repair_wheel(cross_compile(foreign, host), link_strip())
    machine = use_wheel(foreign, unpack_wheel(wheel, foreign.version))
    size_mb = round(wheel.stat().st_size / 1e6, 1)
    result = {"wheel": wheel.name, "mb": size_mb, "machine": machine, "commands": len(COMMANDS)}
    print(f"RESULT {json.dumps(result)}")  # noqa: T201 - the program's answer


if __name__ == "__main__":
    main()
