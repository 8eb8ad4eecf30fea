"""A Docker engine for the tests, and a base image that no registry is needed for.

The engine is the one that DOCKER_HOST names, or the usual one, where it answers; else dockerd is
started, as root, without a bridge: containers live in the host's network. The base image is a
Debian made by debootstrap, once, and kept in the user's cache; it trusts the certificates that this
machine's administrator added, as a company's own base image would.
"""

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

import docker
from docker.errors import DockerException, ImageNotFound
from platformdirs import user_cache_path
from requests.exceptions import RequestException

SUITE: Final = "bookworm"
BASE: Final = f"trimtab-test/{SUITE}"
START_SECONDS: Final = 60.0
ADDED: Final = Path("/usr/local/share/ca-certificates")
"""Where an administrator of Debian puts certificates."""


@contextmanager
def engine(folder: Path) -> Iterator[Any]:
    """Give a client of an engine; one that was started ends with the block. Raises RuntimeError."""
    found = _answering(None)
    if found is not None:
        with closing(found):
            yield found
        return
    process = _started(folder)
    try:
        with closing(_awaited(process, folder)) as client:
            yield client
    finally:
        process.terminate()
        process.wait(60)
        left = str(folder / "exec" / "netns" / "default")  # mounted since the first container
        subprocess.run(["umount", left], check=False, capture_output=True)
        shutil.rmtree(folder / "data", ignore_errors=True)  # gigabytes


def base(client: Any) -> str:
    """Return the name of the base image; made where the engine has none."""
    try:
        client.images.get(f"{BASE}:latest")
    except ImageNotFound:
        with _archive().open("rb") as tar:
            client.api.import_image_from_data(tar.read(), repository=BASE, tag="latest")
    return f"{BASE}:latest"


def _answering(address: str | None) -> Any:
    try:
        client = docker.from_env() if address is None else docker.DockerClient(address)
        client.ping()
    except (DockerException, RequestException):
        return None
    return client


def _started(folder: Path) -> "subprocess.Popen[bytes]":
    if shutil.which("dockerd") is None:
        raise RuntimeError("no Docker engine answers, and there is no dockerd to start: install it")
    flags = [f"--host=unix://{folder}/docker.sock", f"--data-root={folder}/data"]
    flags += [f"--exec-root={folder}/exec", f"--pidfile={folder}/dockerd.pid"]
    flags += ["--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false"]
    with (folder / "dockerd.log").open("wb") as log:
        return subprocess.Popen(["dockerd", *flags], stdout=log, stderr=log)


def _awaited(process: "subprocess.Popen[bytes]", folder: Path) -> Any:
    pause, deadline = Event(), monotonic() + START_SECONDS
    while process.poll() is None and monotonic() < deadline:
        client = _answering(f"unix://{folder}/docker.sock")
        if client is not None:
            return client
        pause.wait(0.2)
    process.terminate()
    end = (folder / "dockerd.log").read_text()[-2000:]
    raise RuntimeError(f"dockerd did not start (it needs root):\n{end}")


def _archive() -> Path:
    """Return the base image's files as one archive; the first time that takes two minutes."""
    folder = user_cache_path("trimtab") / "containers"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{SUITE}.tar"
    if not kept.is_file():
        if shutil.which("debootstrap") is None:
            raise RuntimeError("the base image is made by debootstrap; install it")
        root, draft = folder / f"{SUITE}.root", folder / f"{SUITE}.draft"
        shutil.rmtree(root, ignore_errors=True)
        _filled(root)
        with tarfile.open(draft, "w") as archive:
            archive.add(root, arcname=".", filter=_plain)
        shutil.rmtree(root)
        draft.replace(kept)
    return kept


def _filled(root: Path) -> None:
    flags = ["--variant=minbase", "--include=ca-certificates"]
    subprocess.run(["debootstrap", *flags, SUITE, str(root)], check=True, capture_output=True)
    for certificate in ADDED.glob("*.crt") if ADDED.is_dir() else ():
        shutil.copy(certificate, root / ADDED.relative_to("/"))
    trusted = "/etc/ssl/certs/ca-certificates.crt"
    subprocess.run(["chroot", str(root), "update-ca-certificates"], check=True, capture_output=True)
    (root / "etc" / "pip.conf").write_text(f"[global]\ncert = {trusted}\n")
    for part in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / part)
        (root / part / "partial").mkdir(parents=True)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave devices out; the engine makes its own."""
    return None if member.isdev() else member
