"""A wheel's installation into an environment without a compiler, a Spark and a package of ours."""

import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Final

from wheels.commands import UV, run

COMPILERS: Final = ("cc", "gcc", "clang", "c++", "g++", "javac", "cargo")
IMPORTS: Final = 9
USE: Final = """
import importlib.util, pathlib, sys
import trimtab.assignor, trimtab.broker_plugin, trimtab.cli, trimtab.common, trimtab.sidecar
from trimtab.assignor import ConsumerGroup, Load, Member, PlacementPolicy, TopicPartition, place_partitions
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.queues import message
partitions = tuple(TopicPartition("t", n) for n in range(6))
group = ConsumerGroup((Member("a", frozenset({"t"})), Member("b", frozenset({"t"}))), partitions)
plan = place_partitions(group, Load(dict.fromkeys(partitions, 1e5)), PlacementPolicy())
assert sum(map(len, plan.assignment.values())) == 6, plan
Consumer({"bootstrap.servers": "localhost:9", "group.id": "g"}).close()
assert message.__file__.endswith(".so"), message.__file__
assert pathlib.Path(message.__file__).is_relative_to(sys.prefix), "the source tree was imported"
for name in ("pyspark", "pyarrow", "kubernetes", "pytest"):
    assert importlib.util.find_spec(name) is None, f"{name} came with the package"
"""
COMMANDS: Final = (["--version"], ["--help"], ["heuristics"], ["sidecar", "--help"], ["ingest", "--help"])


def install_wheel(python: str, wheel: Path, folder: Path) -> float:
    """Install a wheel and what it needs into a new environment; return the seconds of the installation.

    The packages of others come as wheels too, from the cache of uv where it has them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    run(UV, "venv", "-q", "--python", python, folder)
    path = _bare_path(folder)
    if compiler := next((name for name in COMPILERS if shutil.which(name, path=path)), None):
        sys.exit(f"the bare environment has a compiler: {compiler}")
    begun = time.monotonic()
    run(
        UV,
        "pip",
        "install",
        "-q",
        "--system-certs",
        "--only-binary",
        ":all:",
        "--python",
        folder,
        wheel,
        PATH=path,
    )
    return time.monotonic() - begun


def use_wheel(folder: Path) -> None:
    """Place partitions, open a consumer and run commands; ends the program if one of them fails."""
    path = _bare_path(folder)
    # -I: neither the working directory nor PYTHONPATH is searched
    run(folder / "bin" / "python", "-I", "-c", USE, PATH=path)
    for words in COMMANDS:
        run(folder / "bin" / "trimtab", *words, PATH=path, PYTHONPATH="")


def measure_import_ms(folder: Path, statement: str) -> int:
    """Return the milliseconds that a statement takes in a new process, the median of nine."""
    code = f"import time; t = time.perf_counter(); {statement}; print((time.perf_counter() - t) * 1000)"
    command = (folder / "bin" / "python", "-I", "-c", code)
    run(*command)  # compiles the modules
    return round(statistics.median(float(run(*command)) for _ in range(IMPORTS)))


def _bare_path(folder: Path) -> str:
    """Return a PATH with the programs of the environment only."""
    return str(folder / "bin")
