"""Builds the compiled steps of `steady`; everything else is in pyproject.toml.

TRIMTAB_CHECK_BOUNDS=1 builds them with every array access checked, for hunting faults.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

STEADY = Path("assignor/steady")
NAMES = Path("build/types/trimtab")  # links that give Cython the installed names


def _link() -> None:
    NAMES.mkdir(parents=True, exist_ok=True)
    link = NAMES / "assignor"
    if not link.is_symlink():
        link.symlink_to(Path("../../../assignor"))


def _extensions() -> list[Extension]:
    _link()
    sources = sorted(STEADY.glob("*.pyx"))
    return cythonize(
        [Extension(f"trimtab.assignor.steady.{s.stem}", [str(s)]) for s in sources],
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
