"""Downloads Java libraries once into a cache, by the Ivy that pyspark contains.

Rules of the cache:

1. A folder is named after its request and appears by one rename, when it is complete.
2. Its marker file lists each JAR with its size. It is checked at each use; an incomplete or damaged
   folder is downloaded again.
3. One process downloads while others wait for a file lock. Ivy inherits the lock, which thus stays
   held while an orphaned Ivy is writing.
4. A complete folder needs no network, Java or pyspark.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeAlias
from xml.sax.saxutils import quoteattr

import platformdirs

from trimtab.consumer_sdk.errors import JarsUnavailableError, MissingExtraError
from trimtab.consumer_sdk.java.download_progress import DownloadCounter, show_download_progress
from trimtab.consumer_sdk.java.java_runtime import require_java

ProgressCallback: TypeAlias = Callable[[str], None]

COMPLETION_MARKER: Final = "complete.json"
IVY_ATTEMPTS: Final = 2  # the second one reuses the files of the first
IVY_SILENCE_TIMEOUT_S: Final = 120.0  # without output


@dataclass(frozen=True, slots=True)
class _JarRequest:
    """JARs to download, and their cache folder."""

    name: str
    coordinates: tuple[str, ...]
    excludes: tuple[str, ...]
    jars_folder: Path  # parent of the folders of all requests
    progress: ProgressCallback | None

    @property
    def target_folder(self) -> Path:
        request = json.dumps([self.coordinates, self.excludes]).encode()
        return self.jars_folder / f"{self.name}-{hashlib.sha256(request).hexdigest()[:12]}"


def fetch_jars(
    name: str,
    coordinates: Sequence[str],
    *,
    excludes: Sequence[str] = (),
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Path, ...]:
    """Return the JARs of `coordinates` and their dependencies, sorted; download them if needed.

    `coordinates` are "organisation:module:version", `excludes` "organisation:module". `progress` gets
    a line per JAR; by default a bar is shown on standard error. Raises JarsUnavailableError,
    JavaNotFoundError, UnsupportedJavaError, and MissingExtraError without pyspark.
    """
    home = (cache or cache_folder()) / "jars"
    request = _JarRequest(name, tuple(coordinates), tuple(excludes), home, progress)
    try:
        return _find_complete(request.target_folder) or _fetch_missing(request)
    except OSError as error:
        raise JarsUnavailableError(
            f"the JARs of {name} cannot be stored in {home}: {error}; "
            "set TRIMTAB_CACHE to a writable folder with free space"
        ) from error


def cache_folder() -> Path:
    """Return Trimtab's cache folder: $TRIMTAB_CACHE, else the user's."""
    folder = os.environ.get("TRIMTAB_CACHE")
    return Path(folder) if folder else platformdirs.user_cache_path("trimtab")


def _find_complete(folder: Path) -> tuple[Path, ...]:
    try:
        sizes: dict[str, int] = json.loads((folder / COMPLETION_MARKER).read_text())
        # By size: a hash would read all of them at each start.
        complete = all((folder / jar).stat().st_size == size for jar, size in sizes.items())
    except (OSError, ValueError):
        return ()
    return tuple(folder / jar for jar in sorted(sizes)) if complete else ()


def _fetch_missing(request: _JarRequest) -> tuple[Path, ...]:
    request.jars_folder.mkdir(parents=True, exist_ok=True)
    with _lock_folder(request) as lock:
        # Another process may have downloaded them during the wait for the lock.
        jars = _find_complete(request.target_folder)
        if not jars:
            _download(request, lock)
            jars = _find_complete(request.target_folder)
    if not jars:
        raise JarsUnavailableError(f"{request.target_folder} was changed during the download; try again")
    return jars


@contextmanager
def _lock_folder(request: _JarRequest) -> Generator[IO[bytes]]:
    with request.target_folder.with_suffix(".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if request.progress:
                request.progress(f"{request.name}: waiting for another process that is downloading the JARs")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _download(request: _JarRequest, lock: IO[bytes]) -> None:
    # The lock is ours, so these belong to processes that were killed.
    for leftover in request.jars_folder.glob(f".{request.target_folder.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{request.target_folder.name}-", dir=request.jars_folder))
    try:
        _retrieve(request, work, lock)
        downloaded = work / "lib"
        sizes = {jar.name: jar.stat().st_size for jar in sorted(downloaded.glob("*.jar"))}
        # Written before the rename: a folder without it never appears (rule 1).
        (downloaded / COMPLETION_MARKER).write_text(json.dumps(sizes, indent=1))
        shutil.rmtree(request.target_folder, ignore_errors=True)
        downloaded.rename(request.target_folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _retrieve(request: _JarRequest, work: Path, lock: IO[bytes]) -> None:
    (work / "ivy.xml").write_text(_render_ivy_module(request))
    command = [
        *(str(require_java()), "-jar", str(_find_ivy_jar())),
        *("-ivy", str(work / "ivy.xml"), "-cache", str(work / "cache")),
        *("-retrieve", str(work / "lib" / "[artifact]-[revision].[ext]")),
    ]
    output = ""
    with show_download_progress(request.name, request.jars_folder, request.progress) as counter:
        for _ in range(IVY_ATTEMPTS):
            code, output = _run_ivy(command, lock, counter)
            if code == 0:
                return
    raise JarsUnavailableError(
        f"the JARs of {request.name} cannot be downloaded; is the internet reachable (behind a proxy: "
        f"JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...)? Ivy's output:\n{_summarize(output)}"
    )


def _run_ivy(command: Sequence[str], lock: IO[bytes], counter: DownloadCounter) -> tuple[int, str]:
    output: list[str] = []
    with subprocess.Popen(  # noqa: S603 - a command of our own making
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[lock.fileno()],  # Ivy inherits the lock (rule 3)
    ) as ivy:
        assert ivy.stdout is not None
        try:
            for text in _read_output(ivy.stdout.fileno()):
                output.append(text)
                counter.parse_output(text)
        except BaseException:  # also Ctrl-C: the lock is free once Ivy is gone
            ivy.kill()
            raise
    return ivy.returncode, "".join(output)


def _read_output(pipe: int) -> Iterator[str]:
    # A download prints dots, so silence means a dead network.
    while select.select([pipe], [], [], IVY_SILENCE_TIMEOUT_S)[0]:
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        yield data.decode(errors="replace")
    raise JarsUnavailableError(f"Ivy printed nothing for {IVY_SILENCE_TIMEOUT_S:.0f} s: is the network up?")


def _summarize(output: str) -> str:
    failure_words = ("unresolved", "not found", "exception", "error", "failed", "refused")
    lines = [line.strip() for line in output.splitlines()]
    failures = [line for line in lines if any(word in line.lower() for word in failure_words)]
    return "\n".join(dict.fromkeys((failures or lines)[-12:]))


def _render_ivy_module(request: _JarRequest) -> str:
    excludes = (exclude.split(":") for exclude in request.excludes)
    excluded = "".join(f"<exclude org={quoteattr(org)} module={quoteattr(m)}/>" for org, m in excludes)
    dependencies = "".join(
        f"<dependency org={quoteattr(org)} name={quoteattr(module)} rev={quoteattr(version)} "
        f'conf="default->runtime,master">{excluded}</dependency>'
        for org, module, version in (c.split(":") for c in request.coordinates)
    )
    return (
        f'<ivy-module version="2.0"><info organisation="trimtab" module={quoteattr(request.name)}/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _find_ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return jar
    raise MissingExtraError("pyspark", "lake")
