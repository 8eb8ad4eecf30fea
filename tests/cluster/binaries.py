"""Finds or builds the programs of the control plane. The first source that exists is used:

1. The folder KUBEBUILDER_ASSETS, as in envtest.
2. Our cache, in the user's cache folder outside the repository.
3. `../shared/kubernetes/NAME-VERSION.xz`, unpacked into the cache.
4. etcd: the PATH; Debian's package, unpacked into the cache (nothing is installed).
5. A build from Go modules into the cache: once, about 15 minutes of CPU; KEDA ten more; helm and
   kustomize three.

The sources of KEDA and the Prometheus Operator are available, too, for their resource definitions.
"""

import lzma
import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

from cluster import build

SHARED: Final = Path(__file__).parents[3] / "shared" / "kubernetes"
KUBERNETES: Final = build.KUBERNETES.removeprefix("v")
KEDA: Final = build.KEDA.removeprefix("v")
NAMES: Final = ("etcd", "kube-apiserver", "kube-controller-manager")
KEDAS: Final = ("keda-operator", "keda-metrics-adapter")
RENDERERS: Final = ("helm", "kustomize")
STORES: Final = ("versitygw",)  # of the tests on an object store


def cache() -> Path:
    """Return the folder of unpacked and built programs."""
    folder = user_cache_path("trimtab") / "kubernetes" / KUBERNETES
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def find(name: str) -> Path:
    """Return one of NAMES, KEDAS, RENDERERS, STORES; build it if needed. Raises OSError, RuntimeError."""
    found = there(name)
    if found is not None:
        return found
    kept, version = _kept_as(name)
    if name == "etcd":
        return _etcd(kept)
    print(f"building {name} {version} into {kept.parent}, once", flush=True)  # noqa: T201
    made = build.keda if name in KEDAS else build.kubernetes
    if name in (*RENDERERS, *STORES):
        made = build.plain
    return _kept(kept, lambda draft: made(name, draft))


def there(name: str) -> Path | None:
    """Return a program that exists already, perhaps as a packed file."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    given = None if assets is None else Path(assets) / name
    if given is not None and given.is_file():
        return given
    kept, version = _kept_as(name)
    packed = SHARED / f"{name}-{version}.xz"
    if kept.is_file():
        return kept
    if packed.is_file():
        return _kept(kept, lambda draft: _unpack(packed, draft))
    installed = shutil.which("etcd") if name == "etcd" else None
    return None if installed is None else Path(installed)


def _kept_as(name: str) -> tuple[Path, str]:
    """Return the path of a program in the cache, and its version."""
    version = _version(name)
    return cache() / (name if name in NAMES else f"{name}-{version}"), version


def _version(name: str) -> str:
    if name in (*RENDERERS, *STORES):
        return build.PLAIN[name][1].removeprefix("v")
    return KEDA if name in KEDAS else KUBERNETES


def _etcd(kept: Path) -> Path:
    if shutil.which("apt-get") is not None:
        try:
            return _kept(kept, partial(_unpack_package, "etcd-server", "etcd"))
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no Debian package of etcd ({error})", flush=True)  # noqa: T201
    return _kept(kept, lambda draft: build.plain("etcd", draft))


def prepare() -> None:
    """Provide all programs, and print each."""
    for name in (*NAMES, *RENDERERS, *KEDAS):
        print(f"{name}: {find(name)}", flush=True)  # noqa: T201


def _kept(kept: Path, make: "build.Make") -> Path:
    """Create a program atomically: a crash or a concurrent run leaves no partial file."""
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        draft = Path(folder) / kept.name
        make(draft)
        draft.chmod(0o755)
        draft.replace(kept)
    return kept


def _unpack(packed: Path, draft: Path) -> None:
    with lzma.open(packed) as source, draft.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)


def find_prometheus() -> Path:
    """Return Debian's Prometheus, installed or unpacked. Raises OSError, CalledProcessError."""
    installed = shutil.which("prometheus")
    kept = cache() / "prometheus"
    if installed is not None or kept.is_file():
        return kept if installed is None else Path(installed)
    return _kept(kept, partial(_unpack_package, "prometheus", "prometheus"))


def _unpack_package(package: str, program: str, draft: Path) -> None:
    """Unpack a program of a Debian package; update the list of packages first if it is outdated."""
    folder = draft.parent
    fetch = ["apt-get", "download", "-q", package]
    if subprocess.run(fetch, cwd=folder, check=False, capture_output=True).returncode:
        subprocess.run(["apt-get", "update", "-q"], check=True, capture_output=True)
        subprocess.run(fetch, cwd=folder, check=True, capture_output=True)
    (archive,) = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg", "-x", str(archive), str(folder / "x")], check=True)
    shutil.move(folder / "x" / "usr" / "bin" / program, draft)


if __name__ == "__main__":
    prepare()
