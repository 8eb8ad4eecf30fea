"""The commands of the strangers, by client. Java's and Go's programs are built once into the cache.

Go's modules are those of go.sum, Kafka's client is the one of the embedded broker's JARs.
"""

import hashlib
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
OLDER_JAVA: Final = "java-3.9"
OLDER_JAVA_CLIENT: Final = "org.apache.kafka:kafka-clients:3.9.1"
JVM_OPTIONS: Final = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


class BuildFailedError(Exception):
    """A stranger's program cannot be built."""

    def __init__(self, compiler: str, needs: str, output: str) -> None:
        super().__init__(f"{compiler} cannot build a program of the tests; it needs {needs}:\n{output}")


def find_command(kind: str) -> list[str]:
    """Return the command of a client's program; build it if needed. Raises BuildFailedError."""
    if kind in {"java", OLDER_JAVA}:
        jars = _kafka_jars() if kind == "java" else _older_client_jars()
        path = ":".join(map(str, (_built(CLIENTS / "java", "Stranger.class", _compile).parent, *jars)))
        return [str(require_java()), *JVM_OPTIONS, "-cp", path, "Stranger"]
    if kind == "go":
        return [str(build_go_program(CLIENTS / "go"))]
    return [sys.executable, "-m", f"strangers.clients.{kind}"]


def build_go_program(sources: Path) -> Path:
    """Return the program of a folder with go.mod and go.sum; build it if needed. Raises BuildFailedError."""
    return _built(sources, "program", _link)


def _kafka_jars() -> tuple[Path, ...]:
    return fetch_jars("kafka", broker_config.KAFKA_COORDINATES, excludes=broker_config.EXCLUDED_COORDINATES)


def _older_client_jars() -> tuple[Path, ...]:
    return fetch_jars("kafka-clients", (OLDER_JAVA_CLIENT,), is_pinned=False)


def _built(sources: Path, output: str, build: Callable[[Path, Path], None]) -> Path:
    """Return the output that was built from the present sources."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(sources.iterdir())))
    digest.update(f"{broker_config.KAFKA_VERSION} {output}".encode())  # an output of another name is another
    folder = cache_folder() / "strangers" / f"{sources.name}-{digest.hexdigest()[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            build(sources, Path(draft) / "built")
            if not folder.is_dir():  # another process may have been faster
                (Path(draft) / "built").rename(folder)
    return folder / output


def _compile(sources: Path, target: Path) -> None:
    jars = ":".join(map(str, _kafka_jars()))
    compiler = [str(require_java()), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    _run([*compiler, "-cp", jars, "-d", str(target), str(sources / "Stranger.java")], "a JDK, 17 or newer")


def _link(sources: Path, target: Path) -> None:
    command = [
        "go",
        "build",
        "-C",
        str(sources),
        "-mod=readonly",
        "-trimpath",
        "-o",
        f"{target}/program",
        ".",
    ]
    _run(command, "Go, 1.26 or newer")


def _run(command: list[str], needs: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BuildFailedError(command[0], needs, str(error)) from error
    if done.returncode:
        raise BuildFailedError(command[0], needs, done.stdout + done.stderr)
