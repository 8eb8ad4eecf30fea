"""A Docker engine for the tests, and a base image that needs no registry.

The engine is that of DOCKER_HOST or the default one, if it responds; otherwise dockerd is started as
root. It changes no rule of the firewall: its bridge serves published ports only, and containers that need
another machine use the host's network. The base image is a Debian made once by
debootstrap and kept in the user's cache; it trusts the certificates that the machine's administrator
has added, as a company's base image would.
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
SOCKET: Final = "docker.sock"
BRIDGE: Final = "docker0"
ADDED_CERTIFICATES: Final = Path("/usr/local/share/ca-certificates")
"""Directory of the certificates that an administrator of Debian adds."""


@contextmanager
def engine(folder: Path) -> Iterator[Any]:
    """Yield a client of an engine; stops an engine that it has started. Raises RuntimeError."""
    available = _connect(None)
    if available is not None:
        with closing(available):
            yield available
        return
    had_bridge = Path("/sys/class/net", BRIDGE).exists()
    process = _start_dockerd(folder)
    try:
        with closing(_wait_for_engine(process, folder)) as client:
            yield client
    finally:
        process.terminate()
        process.wait(60)
        mount = str(folder / "exec" / "netns" / "default")  # dockerd mounts it with the first container
        subprocess.run(["umount", mount], check=False, capture_output=True)
        if not had_bridge:
            subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)
        shutil.rmtree(folder / "data", ignore_errors=True)  # gigabytes


def base_image(client: Any) -> str:
    """Return the name of the base image; builds it if the engine does not have it."""
    try:
        client.images.get(f"{BASE}:latest")
    except ImageNotFound:
        with _archive().open("rb") as tar:
            client.api.import_image_from_data(tar.read(), repository=BASE, tag="latest")
    return f"{BASE}:latest"


def _connect(address: str | None) -> Any:
    try:
        client = docker.from_env() if address is None else docker.DockerClient(address)
        client.ping()
    except (DockerException, RequestException):
        return None
    return client


def _start_dockerd(folder: Path) -> "subprocess.Popen[bytes]":
    if shutil.which("dockerd") is None:
        raise RuntimeError("no Docker engine responds and dockerd is not installed: install it")
    flags = [f"--host=unix://{folder}/{SOCKET}", f"--data-root={folder}/data"]
    flags += [f"--exec-root={folder}/exec", f"--pidfile={folder}/dockerd.pid"]
    flags += ["--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    with (folder / "dockerd.log").open("wb") as log:
        return subprocess.Popen(["dockerd", *flags], stdout=log, stderr=log)


def _wait_for_engine(process: "subprocess.Popen[bytes]", folder: Path) -> Any:
    pause, deadline = Event(), monotonic() + START_SECONDS
    while process.poll() is None and monotonic() < deadline:
        client = _connect(f"unix://{folder}/{SOCKET}")
        if client is not None:
            return client
        pause.wait(0.2)
    process.terminate()
    log_tail = (folder / "dockerd.log").read_text()[-2000:]
    raise RuntimeError(f"dockerd did not start (it needs root):\n{log_tail}")


def _archive() -> Path:
    """Return the archive of the base image; the first call takes two minutes."""
    folder = user_cache_path("trimtab") / "containers"
    folder.mkdir(parents=True, exist_ok=True)
    tar_file = folder / f"{SUITE}.tar"
    if not tar_file.is_file():
        if shutil.which("debootstrap") is None:
            raise RuntimeError("debootstrap, which builds the base image, is not installed: install it")
        root, draft = folder / f"{SUITE}.root", folder / f"{SUITE}.draft"
        shutil.rmtree(root, ignore_errors=True)
        _bootstrap_debian(root)
        with tarfile.open(draft, "w") as archive:
            archive.add(root, arcname=".", filter=_skip_devices)
        shutil.rmtree(root)
        draft.replace(tar_file)
    return tar_file


def _bootstrap_debian(root: Path) -> None:
    flags = ["--variant=minbase", "--include=ca-certificates"]
    subprocess.run(["debootstrap", *flags, SUITE, str(root)], check=True, capture_output=True)
    for certificate in ADDED_CERTIFICATES.glob("*.crt") if ADDED_CERTIFICATES.is_dir() else ():
        shutil.copy(certificate, root / ADDED_CERTIFICATES.relative_to("/"))
    trusted = "/etc/ssl/certs/ca-certificates.crt"
    subprocess.run(["chroot", str(root), "update-ca-certificates"], check=True, capture_output=True)
    (root / "etc" / "pip.conf").write_text(f"[global]\ncert = {trusted}\n")
    for part in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / part)
        (root / part / "partial").mkdir(parents=True)


def _skip_devices(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Exclude devices; the engine creates its own."""
    return None if member.isdev() else member
