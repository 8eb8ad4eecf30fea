"""Python for arm64 as this machine's Debian has it, unpacked into a folder and run by QEMU.

The packages come from the machine's own sources, which apt checks by signature. apt gets lists, cache and
state of its own, so nothing of the machine's changes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wheels.commands import run

PACKAGES: Final = ("python3", "libpython3-dev", "libstdc++6")
QEMU: Final = "qemu-aarch64-static"
CONFIG: Final = """
APT::Architecture "arm64";
APT::Architectures {{"arm64";}};
Dir::State::Lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
"""


@dataclass(frozen=True)
class ForeignPython:
    """An interpreter of arm64, in the folder that is its root."""

    root: Path
    version: str
    """As 3.11."""

    def run(self, *words: object) -> str:
        """Run the interpreter and return its output; ends the program if it fails."""
        program = self.root / "usr" / "bin" / f"python{self.version}"
        return run(QEMU, "-L", self.root, program, *words, PYTHONPATH="")

    @property
    def include_folders(self) -> tuple[Path, ...]:
        """Folders of Python's headers; those of one processor are below the second."""
        include = self.root / "usr" / "include"
        return (include / f"python{self.version}", include)

    @property
    def build_settings(self) -> Path:
        """The module that tells how its extension modules are named and compiled."""
        name = "_sysconfigdata__aarch64-linux-gnu.py"
        return self.root / "usr" / "lib" / f"python{self.version}" / name


def unpack_python(folder: Path) -> ForeignPython:
    """Download and unpack the packages into an empty folder."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    (folder / "status").touch()
    config = folder / "apt.conf"
    config.write_text(CONFIG.format(folder=folder))
    run("apt-get", "-q", "update", APT_CONFIG=str(config))
    flags = ("-y", "-q", "--no-install-recommends", "--download-only")
    run("apt-get", *flags, "install", *PACKAGES, APT_CONFIG=str(config))
    root = folder / "root"
    for package in sorted((folder / "cache" / "archives").glob("*.deb")):
        run("dpkg-deb", "-x", package, root)
    (settings,) = root.glob("usr/lib/python3.*/_sysconfigdata__aarch64-linux-gnu.py")
    return ForeignPython(root, settings.parent.name.removeprefix("python"))
