"""Maps the top-level folders to the package `trimtab` and builds the Cython modules.

The rest of the configuration is in pyproject.toml. Set TRIMTAB_CHECK_BOUNDS=1 to build with bounds
checks on every array access.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

FOLDERS = ("assignor", "broker_plugin", "cli", "common", "consumer_sdk", "sidecar", "testing")
NAMESPACE = Path("trimtab")


def find_packages() -> dict[str, str]:
    """Return the folder of every package: {"trimtab.assignor": "assignor", ...}."""
    modules = [file for folder in FOLDERS for file in Path(folder).rglob("*.py")]
    folders = sorted({module.parent for module in modules})
    return {".".join((NAMESPACE.name, *folder.parts)): folder.as_posix() for folder in folders}


def link_folders() -> None:
    """Make the links `trimtab/X -> ../X` where the source tree lacks them, as an sdist does.

    Cython finds the modules that it imports by these names.
    """
    NAMESPACE.mkdir(exist_ok=True)
    for folder in FOLDERS:
        link = NAMESPACE / folder
        if not link.is_symlink():
            link.symlink_to(Path("..") / folder)


def build_extensions() -> list[Extension]:
    """Return an extension module for every .pyx file."""
    link_folders()
    sources = sorted(source for folder in FOLDERS for source in Path(folder).rglob("*.pyx"))
    return cythonize(
        [
            Extension(".".join((NAMESPACE.name, *source.with_suffix("").parts)), [str(source)])
            for source in sources
        ],
        include_path=["."],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": os.environ.get("TRIMTAB_CHECK_BOUNDS") == "1",
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
        },
    )


PACKAGES = find_packages()
setup(
    packages=sorted(PACKAGES),
    package_dir=PACKAGES,
    ext_modules=build_extensions(),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},  # by default one C compiler after the other
)
