"""The commands of the strangers, by client. Java's and Go's programs are built once into the cache.

Go's modules are those of go.sum, Kafka's client is the one of the embedded broker's JARs.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trimtab.cli.broker import broker_config
from trimtab.consumer_sdk.java.jars import cache_folder, fetch_jars
from trimtab.consumer_sdk.java.java_runtime import require_java

TESTS: Final = Path(__file__).parents[1]
CLIENTS: Final = Path(__file__).parent / "clients"
PYTHON: Final = ("aiokafka", "kafka_python", "librdkafka")
BUILT: Final = ("go", "java")
KINDS: Final = (*BUILT, *PYTHON)
JVM_OPTIONS: Final = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


class ToolchainMissingError(Exception):
    """A compiler that the strangers need is not installed."""

    def __init__(self, program: str, what: str) -> None:
        super().__init__(
            f"{program} is not in PATH: install {what} to build the consumers of tests/strangers"
        )


def find_command(kind: str) -> list[str]:
    """Return the command of a client's program; build it if needed. Raises ToolchainMissingError."""
    if kind == "java":
        jars = ":".join(map(str, _kafka_jars()))
        return [str(require_java()), *JVM_OPTIONS, "-cp", f"{_built('java', _compile)}:{jars}", "Stranger"]
    if kind == "go":
        return [str(_built("go", _link) / "stranger")]
    return [sys.executable, "-m", f"strangers.clients.{kind}"]


def _kafka_jars() -> tuple[Path, ...]:
    return fetch_jars("kafka", broker_config.KAFKA_COORDINATES, excludes=broker_config.EXCLUDED_COORDINATES)


def _built(kind: str, build: Callable[[Path, Path], None]) -> Path:
    """Return the folder with the program that was built from the present sources."""
    sources = CLIENTS / kind
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(sources.iterdir())))
    digest.update(broker_config.KAFKA_VERSION.encode())
    folder = cache_folder() / "strangers" / f"{kind}-{digest.hexdigest()[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            build(sources, Path(draft) / "built")
            if not folder.is_dir():  # another process may have been faster
                (Path(draft) / "built").rename(folder)
    return folder


def _compile(sources: Path, target: Path) -> None:
    javac = _require("javac", "a JDK, 17 or newer")
    jars = ":".join(map(str, _kafka_jars()))
    _run([javac, "--release", "17", "-cp", jars, "-d", str(target), str(sources / "Stranger.java")], sources)


def _link(sources: Path, target: Path) -> None:
    go = _require("go", "Go, 1.26 or newer")
    _run([go, "build", "-mod=readonly", "-trimpath", "-o", f"{target}/stranger", "."], sources)


def _require(program: str, what: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ToolchainMissingError(program, what)
    return path


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed in {folder}:\n{done.stdout}{done.stderr}")
