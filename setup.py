"""Builds what is compiled: the steps of `steady` and a queue's message; all else: pyproject.toml.

TRIMTAB_CHECK_BOUNDS=1 builds them with every array access checked, for hunting faults.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

FOLDERS = ("assignor/steady", "consumer_sdk/queues")
NAMES = Path("build/types/trimtab")  # links that give Cython the installed names


def _link() -> None:
    NAMES.mkdir(parents=True, exist_ok=True)
    for package in {folder.split("/")[0] for folder in FOLDERS}:
        link = NAMES / package
        if not link.is_symlink():
            link.symlink_to(Path("../../..") / package)


def _extensions() -> list[Extension]:
    _link()
    sources = [source for folder in FOLDERS for source in sorted(Path(folder).glob("*.pyx"))]
    names = {source: ".".join(("trimtab", *source.with_suffix("").parts)) for source in sources}
    return cythonize(
        [Extension(name, [str(source)]) for source, name in names.items()],
        include_path=[str(NAMES.parent)],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": os.environ.get("TRIMTAB_CHECK_BOUNDS") == "1",
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
        },
    )


setup(ext_modules=_extensions())
