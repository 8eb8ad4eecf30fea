"""Java libraries, fetched once into a cache with the Ivy that pyspark brings along.

Rules of the cache: a folder is named after what was asked for and appears by one rename, when
everything is in it; its marker file lists every jar with its size and is checked on each use, so a
half-filled or damaged folder is fetched anew. One process fetches while others wait at a file lock;
Ivy inherits that lock, so that it stays held while an orphaned Ivy is still writing. A folder that
is complete needs neither the network nor Java nor pyspark.
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
IVY_ATTEMPTS: Final = 2  # a second one takes up what the first has brought
IVY_SILENCE_TIMEOUT_S: Final = 120.0  # seconds without a byte from Ivy: the network is gone


@dataclass(frozen=True, slots=True)
class _JarRequest:
    """What to fetch, and where it is to land."""

    name: str
    coordinates: tuple[str, ...]
    excludes: tuple[str, ...]
    jars_folder: Path  # the folder of all fetched sets

    @property
    def target_folder(self) -> Path:
        asked = json.dumps([self.coordinates, self.excludes]).encode()
        return self.jars_folder / f"{self.name}-{hashlib.sha256(asked).hexdigest()[:12]}"


def fetch_jars(
    name: str,
    coordinates: Sequence[str],
    *,
    excludes: Sequence[str] = (),
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Path, ...]:
    """Return the jars of `coordinates` and all that they need, sorted; downloads the first time.

    `coordinates` are "organisation:module:version", `excludes` "organisation:module". `cache` is
    Trimtab's cache folder ($TRIMTAB_CACHE, else the user's); `progress` hears one line a jar, by
    default a bar on standard error.
    Raises JarsUnavailableError, MissingExtraError without pyspark, JavaNotFoundError, UnsupportedJavaError.
    """
    home = (cache or cache_folder()) / "jars"
    wanted = _JarRequest(name, tuple(coordinates), tuple(excludes), home)
    found = _find_complete_jars(wanted.target_folder)
    if found is None:
        try:
            found = _fetch_missing(wanted, progress)
        except OSError as error:
            raise JarsUnavailableError(
                f"the jars of {name} cannot be kept in {home}: {error}; "
                "let TRIMTAB_CACHE name a folder with room that may be written"
            ) from error
    return found


def cache_folder() -> Path:
    """Return Trimtab's cache folder: $TRIMTAB_CACHE, else the user's."""
    given = os.environ.get("TRIMTAB_CACHE")
    return Path(given) if given else platformdirs.user_cache_path("trimtab")


def _find_complete_jars(folder: Path) -> tuple[Path, ...] | None:
    """Return the jars if each is there in its full size."""
    try:
        sizes: dict[str, int] = json.loads((folder / COMPLETION_MARKER).read_text())
        whole = all((folder / jar).stat().st_size == size for jar, size in sizes.items())
    except (OSError, ValueError):
        return None
    return tuple(folder / jar for jar in sorted(sizes)) if sizes and whole else None


def _fetch_missing(request: _JarRequest, progress: ProgressCallback | None) -> tuple[Path, ...]:
    request.jars_folder.mkdir(parents=True, exist_ok=True)
    with _lock_folder(request.target_folder.with_suffix(".lock"), request.name, progress) as lock:
        found = _find_complete_jars(request.target_folder)  # another process may have been faster
        if found is None:
            _download_jars(request, lock, progress)
            found = _find_complete_jars(request.target_folder)
    if found is None:
        raise JarsUnavailableError(
            f"{request.target_folder} was changed while it was being filled; try again"
        )
    return found


@contextmanager
def _lock_folder(
    path: Path, name: str, progress: ProgressCallback | None
) -> Generator[IO[bytes], None, None]:
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if progress:
                progress(f"{name}: another process is fetching the jars, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _download_jars(
    request: _JarRequest, lock: IO[bytes], progress: ProgressCallback | None
) -> None:
    for leftover in request.jars_folder.glob(f".{request.target_folder.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{request.target_folder.name}-", dir=request.jars_folder))
    try:
        _run_ivy_retrieve(request, work, lock, progress)
        filled = work / "lib"
        sizes = {jar.name: jar.stat().st_size for jar in sorted(filled.glob("*.jar"))}
        (filled / COMPLETION_MARKER).write_text(json.dumps(sizes, indent=1))
        shutil.rmtree(request.target_folder, ignore_errors=True)
        filled.rename(request.target_folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_ivy_retrieve(
    request: _JarRequest, work: Path, lock: IO[bytes], progress: ProgressCallback | None
) -> None:
    (work / "ivy.xml").write_text(_render_ivy_module(request))
    command = [
        *(str(require_java()), "-jar", str(_find_ivy_jar())),
        *("-ivy", str(work / "ivy.xml"), "-cache", str(work / "cache")),
        *("-retrieve", str(work / "lib" / "[artifact]-[revision].[ext]")),
    ]
    said = ""
    with show_download_progress(request.name, request.jars_folder, progress) as tally:
        for _ in range(IVY_ATTEMPTS):
            code, said = _run_ivy(command, lock, tally)
            if code == 0:
                return
    raise JarsUnavailableError(
        f"the jars of {request.name} cannot be downloaded; is there a way to the internet "
        f"(behind a proxy: JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...)? Ivy says:\n{_summarize_failure(said)}"
    )


def _run_ivy(command: Sequence[str], lock: IO[bytes], counter: DownloadCounter) -> tuple[int, str]:
    """Run Ivy; return its exit code and what it said. Ivy never outlives an error in here."""
    said: list[str] = []
    with subprocess.Popen(  # noqa: S603 - a command of our own making
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[lock.fileno()],
    ) as ivy:
        assert ivy.stdout is not None
        try:
            for text in _read_output(ivy.stdout.fileno()):
                said.append(text)
                counter.parse_output(text)
        except BaseException:
            ivy.kill()
            raise
    return ivy.returncode, "".join(said)


def _read_output(pipe: int) -> Iterator[str]:
    """Yield what arrives, dots of a download included; silence for too long is a dead network."""
    while select.select([pipe], [], [], IVY_SILENCE_TIMEOUT_S)[0]:
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        yield data.decode(errors="replace")
    raise JarsUnavailableError(
        f"Ivy has said nothing for {IVY_SILENCE_TIMEOUT_S:.0f} s: is the network up?"
    )


def _summarize_failure(output: str) -> str:
    telling = ("unresolved", "not found", "exception", "error", "failed", "refused")
    lines = [line.strip() for line in output.splitlines()]
    chosen = [line for line in lines if any(word in line.lower() for word in telling)]
    return "\n".join(dict.fromkeys((chosen or lines)[-12:]))


def _render_ivy_module(request: _JarRequest) -> str:
    """Return the ivy.xml that asks for `request`."""
    shut_out = "".join(
        f"<exclude org={quoteattr(org)} module={quoteattr(module)}/>"
        for org, module in (exclude.split(":") for exclude in request.excludes)
    )
    asked = "".join(
        f"<dependency org={quoteattr(org)} name={quoteattr(module)} rev={quoteattr(version)} "
        f'conf="default->runtime,master">{shut_out}</dependency>'
        for org, module, version in (c.split(":") for c in request.coordinates)
    )
    return (
        f'<ivy-module version="2.0"><info organisation="trimtab" module={quoteattr(request.name)}/>'
        f"<dependencies>{asked}</dependencies></ivy-module>"
    )


def _find_ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    for place in places or ():
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise MissingExtraError("pyspark", "lake")
