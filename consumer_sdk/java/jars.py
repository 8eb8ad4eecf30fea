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

from trimtab.consumer_sdk.errors import JarsUnavailable, MissingExtra
from trimtab.consumer_sdk.java.download_progress import Tally, shown
from trimtab.consumer_sdk.java.java_runtime import require_java

Progress: TypeAlias = Callable[[str], None]

MARKER: Final = "complete.json"
ATTEMPTS: Final = 2  # a second one takes up what the first has brought
SILENCE: Final = 120.0  # seconds without a byte from Ivy: the network is gone


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What to fetch, and where it is to land."""

    name: str
    coordinates: tuple[str, ...]
    excludes: tuple[str, ...]
    home: Path  # the folder of all fetched sets

    @property
    def folder(self) -> Path:
        asked = json.dumps([self.coordinates, self.excludes]).encode()
        return self.home / f"{self.name}-{hashlib.sha256(asked).hexdigest()[:12]}"


def fetch(
    name: str,
    coordinates: Sequence[str],
    *,
    excludes: Sequence[str] = (),
    cache: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Return the jars of `coordinates` and all that they need, sorted; downloads the first time.

    `coordinates` are "organisation:module:version", `excludes` "organisation:module". `cache` is
    Trimtab's cache folder ($TRIMTAB_CACHE, else the user's); `progress` hears one line a jar, by
    default a bar on standard error.
    Raises JarsUnavailable, MissingExtra without pyspark, NoJava, WrongJava.
    """
    home = (cache or cache_folder()) / "jars"
    wanted = _Wanted(name, tuple(coordinates), tuple(excludes), home)
    found = _complete(wanted.folder)
    if found is None:
        try:
            found = _fetch(wanted, progress)
        except OSError as error:
            raise JarsUnavailable(
                f"the jars of {name} cannot be kept in {home}: {error}; "
                "let TRIMTAB_CACHE name a folder with room that may be written"
            ) from error
    return found


def cache_folder() -> Path:
    """Return Trimtab's cache folder: $TRIMTAB_CACHE, else the user's."""
    given = os.environ.get("TRIMTAB_CACHE")
    return Path(given) if given else platformdirs.user_cache_path("trimtab")


def _complete(folder: Path) -> tuple[Path, ...] | None:
    """Return the jars if each is there in its full size."""
    try:
        sizes: dict[str, int] = json.loads((folder / MARKER).read_text())
        whole = all((folder / jar).stat().st_size == size for jar, size in sizes.items())
    except (OSError, ValueError):
        return None
    return tuple(folder / jar for jar in sorted(sizes)) if sizes and whole else None


def _fetch(wanted: _Wanted, progress: Progress | None) -> tuple[Path, ...]:
    wanted.home.mkdir(parents=True, exist_ok=True)
    with _locked(wanted.folder.with_suffix(".lock"), wanted.name, progress) as lock:
        found = _complete(wanted.folder)  # another process may have been faster
        if found is None:
            _download(wanted, lock, progress)
            found = _complete(wanted.folder)
    if found is None:
        raise JarsUnavailable(f"{wanted.folder} was changed while it was being filled; try again")
    return found


@contextmanager
def _locked(path: Path, name: str, progress: Progress | None) -> Generator[IO[bytes], None, None]:
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if progress:
                progress(f"{name}: another process is fetching the jars, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _download(wanted: _Wanted, lock: IO[bytes], progress: Progress | None) -> None:
    for leftover in wanted.home.glob(f".{wanted.folder.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{wanted.folder.name}-", dir=wanted.home))
    try:
        _retrieve(wanted, work, lock, progress)
        filled = work / "lib"
        sizes = {jar.name: jar.stat().st_size for jar in sorted(filled.glob("*.jar"))}
        (filled / MARKER).write_text(json.dumps(sizes, indent=1))
        shutil.rmtree(wanted.folder, ignore_errors=True)
        filled.rename(wanted.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _retrieve(wanted: _Wanted, work: Path, lock: IO[bytes], progress: Progress | None) -> None:
    (work / "ivy.xml").write_text(_module(wanted))
    command = [
        *(str(require_java()), "-jar", str(_ivy())),
        *("-ivy", str(work / "ivy.xml"), "-cache", str(work / "cache")),
        *("-retrieve", str(work / "lib" / "[artifact]-[revision].[ext]")),
    ]
    said = ""
    with shown(wanted.name, wanted.home, progress) as tally:
        for _ in range(ATTEMPTS):
            code, said = _run(command, lock, tally)
            if code == 0:
                return
    raise JarsUnavailable(
        f"the jars of {wanted.name} cannot be downloaded; is there a way to the internet "
        f"(behind a proxy: JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...)? Ivy says:\n{_gist(said)}"
    )


def _run(command: Sequence[str], lock: IO[bytes], tally: Tally) -> tuple[int, str]:
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
            for text in _pieces(ivy.stdout.fileno()):
                said.append(text)
                tally.hear(text)
        except BaseException:
            ivy.kill()
            raise
    return ivy.returncode, "".join(said)


def _pieces(pipe: int) -> Iterator[str]:
    """Yield what arrives, dots of a download included; silence for too long is a dead network."""
    while select.select([pipe], [], [], SILENCE)[0]:
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        yield data.decode(errors="replace")
    raise JarsUnavailable(f"Ivy has said nothing for {SILENCE:.0f} s: is the network up?")


def _gist(said: str) -> str:
    telling = ("unresolved", "not found", "exception", "error", "failed", "refused")
    lines = [line.strip() for line in said.splitlines()]
    chosen = [line for line in lines if any(word in line.lower() for word in telling)]
    return "\n".join(dict.fromkeys((chosen or lines)[-12:]))


def _module(wanted: _Wanted) -> str:
    """Return the ivy.xml that asks for `wanted`."""
    shut_out = "".join(
        f"<exclude org={quoteattr(org)} module={quoteattr(module)}/>"
        for org, module in (exclude.split(":") for exclude in wanted.excludes)
    )
    asked = "".join(
        f"<dependency org={quoteattr(org)} name={quoteattr(module)} rev={quoteattr(version)} "
        f'conf="default->runtime,master">{shut_out}</dependency>'
        for org, module, version in (c.split(":") for c in wanted.coordinates)
    )
    return (
        f'<ivy-module version="2.0"><info organisation="trimtab" module={quoteattr(wanted.name)}/>'
        f"<dependencies>{asked}</dependencies></ivy-module>"
    )


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    for place in places or ():
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise MissingExtra("pyspark", "lake")
