"""Run a program with the `trimtab` of an archive in place of the installed one.

    python run_archived.py archive.zip program.py argument …

The compiled steps of `steady` are not in an archive of sources. Its module `pack`, which imports them, is
replaced by one whose functions raise, so the program decides with another heuristic.
"""

import runpy
import sys
from types import ModuleType
from typing import Any

COMPILED = "trimtab.assignor.heuristics.steady.pack"


class NotCompiledModule(ModuleType):
    """Stands in for a module of compiled steps; none of its functions can be called."""

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> None:
            raise NotImplementedError(f"{self.__name__}.{name} is not compiled in this archive")

        return refuse


def main() -> None:
    """Run the program of the command line."""
    archive, program, *arguments = sys.argv[1:]
    sys.path.insert(0, archive)
    sys.modules[COMPILED] = NotCompiledModule(COMPILED)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
