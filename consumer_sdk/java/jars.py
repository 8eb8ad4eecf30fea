"""Downloads Java libraries once into a cache, by the Ivy that pyspark contains.

Rules of the cache:

1. A folder is named after its request and appears by one rename, when it is complete.
2. Its marker file lists each JAR with its size. Sizes and pinned hashes are checked at each use; an
   incomplete, damaged or changed folder is downloaded again.
3. One process downloads while others wait for a file lock. Ivy inherits the lock, which thus stays
   held while an orphaned Ivy is writing.
4. A complete folder needs no network, Java or pyspark.
5. `jars.sha256` pins the JARs of Trimtab's own requests, dependencies included: whatever a server or
   the network delivers, no other JAR runs. `sha256sum --check` reads the file, too.
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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import IO, Final, TypeAlias
from xml.sax.saxutils import quoteattr

import platformdirs

from trimtab.consumer_sdk.errors import JarsUnavailableError, MissingExtraError
from trimtab.consumer_sdk.java.download_progress import DownloadCounter, show_download_progress
from trimtab.consumer_sdk.java.java_runtime import require_java

ProgressCallback: TypeAlias = Callable[[str], None]

COMPLETION_MARKER: Final = "complete.json"
NO_DEPENDENCIES: Final = "*:*"
IVY_ATTEMPTS: Final = 2  # the second one reuses the files of the first
IVY_SILENCE_TIMEOUT_S: Final = 120.0  # without output


@dataclass(frozen=True, slots=True)
class _JarRequest:
    """JARs to download, and their cache folder."""

    name: str
    coordinates: tuple[str, ...]
    excludes: tuple[str, ...]
    hashes: Mapping[str, str] | None  # SHA-256 by file name; None: any
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
    is_pinned: bool = True,
    progress: ProgressCallback | None = None,
) -> tuple[Path, ...]:
    """Return the JARs of `coordinates` and their dependencies, sorted; download them if needed.

    `coordinates` are "organisation:module:version", with ":classifier" if the JAR has one, `excludes`
    "organisation:module" or NO_DEPENDENCIES. Pinned JARs must have the hashes of `jars.sha256`.
    `progress` gets a line per JAR; by default a bar is shown on standard error. Raises
    JarsUnavailableError, JavaNotFoundError, UnsupportedJavaError, and MissingExtraError without pyspark.
    """
    home = cache_folder() / "jars"
    hashes = load_pinned_hashes() if is_pinned else None
    request = _JarRequest(name, tuple(coordinates), tuple(excludes), hashes, home, progress)
    try:
        return _find_complete(request) or _fetch_missing(request)
    except OSError as error:
        raise JarsUnavailableError(
            f"the JARs of {name} cannot be stored in {home}: {error}; "
            "set TRIMTAB_CACHE to a writable folder with free space"
        ) from error


def cache_folder() -> Path:
    """Return Trimtab's cache folder: $TRIMTAB_CACHE, else the user's."""
    folder = os.environ.get("TRIMTAB_CACHE")
    return Path(folder) if folder else platformdirs.user_cache_path("trimtab")


@cache
def load_pinned_hashes() -> dict[str, str]:
    """Return the pinned SHA-256 of each JAR by its file name."""
    lines = resources.files("trimtab.consumer_sdk.java").joinpath("jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in map(str.split, lines)}


def _find_complete(request: _JarRequest) -> tuple[Path, ...]:
    folder = request.target_folder
    try:
        sizes: dict[str, int] = json.loads((folder / COMPLETION_MARKER).read_text())
        jars = [folder / jar for jar in sorted(sizes)]
        # By size first: that is free, while hashes read 60 MB, which takes some 0.1 s.
        is_complete = all(jar.stat().st_size == sizes[jar.name] for jar in jars)
        return tuple(jars) if is_complete and not _list_changed(request, jars) else ()
    except (OSError, ValueError):
        return ()


def _list_changed(request: _JarRequest, jars: Iterable[Path]) -> list[str]:
    """Return the names of JARs without their pinned hash."""
    if request.hashes is None:
        return []
    return [jar.name for jar in jars if _hash_file(jar) != request.hashes.get(jar.name)]


def _hash_file(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _fetch_missing(request: _JarRequest) -> tuple[Path, ...]:
    request.jars_folder.mkdir(parents=True, exist_ok=True)
    with _lock_folder(request) as lock:
        # Another process may have downloaded them during the wait for the lock.
        jars = _find_complete(request)
        if not jars:
            _download(request, lock)
            jars = _find_complete(request)
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
        jars = sorted(downloaded.glob("*.jar"))
        _reject_changed(request, jars)
        sizes = {jar.name: jar.stat().st_size for jar in jars}
        # Written before the rename: a folder without it never appears (rule 1).
        (downloaded / COMPLETION_MARKER).write_text(json.dumps(sizes, indent=1))
        shutil.rmtree(request.target_folder, ignore_errors=True)
        downloaded.rename(request.target_folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _reject_changed(request: _JarRequest, jars: Iterable[Path]) -> None:
    changed = _list_changed(request, jars)
    if changed:
        raise JarsUnavailableError(
            f"{request.name}: {', '.join(changed)}: not the JARs that this version of Trimtab was released "
            "with (SHA-256); a mirror or proxy may have replaced them: download from another one"
        )


def _retrieve(request: _JarRequest, work: Path, lock: IO[bytes]) -> None:
    (work / "ivy.xml").write_text(_render_ivy_module(request))
    command = [
        *(str(require_java()), "-jar", str(_find_ivy_jar())),
        *("-ivy", str(work / "ivy.xml"), "-cache", str(work / "cache")),
        *("-retrieve", str(work / "lib" / "[artifact]-[revision](-[classifier]).[ext]")),
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
    alone = ' transitive="false"' if NO_DEPENDENCIES in request.excludes else ""
    excludes = (exclude.split(":") for exclude in request.excludes if exclude != NO_DEPENDENCIES)
    excluded = "".join(f"<exclude org={quoteattr(org)} module={quoteattr(m)}/>" for org, m in excludes)
    dependencies = "".join(
        f"<dependency org={quoteattr(org)} name={quoteattr(module)} rev={quoteattr(version)}{alone} "
        f'conf="default->runtime,master">{_render_artifact(module, *classifier)}{excluded}</dependency>'
        for org, module, version, *classifier in (c.split(":") for c in request.coordinates)
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        f'<info organisation="trimtab" module={quoteattr(request.name)}/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _render_artifact(module: str, classifier: str = "") -> str:
    if not classifier:
        return ""  # the module's only JAR
    return f'<artifact name={quoteattr(module)} type="jar" m:classifier={quoteattr(classifier)}/>'


def _find_ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return jar
    raise MissingExtraError("pyspark", "lake")
