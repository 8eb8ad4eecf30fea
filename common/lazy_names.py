"""Names of a package that are imported on first use (PEP 562), so that importing the package costs little.

    if TYPE_CHECKING:
        from trimtab.consumer_sdk.consumer.consumer import Consumer

    __getattr__, __dir__ = lazy_names(__name__, {"Consumer": "trimtab.consumer_sdk.consumer.consumer"})

Type checkers follow the imports under TYPE_CHECKING.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__`, which imports a name once from its module, and its `__dir__`.

    `modules` has the module of each name. `__getattr__` raises AttributeError for any other name.
    """

    def get_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get_name, lambda: sorted({*vars(sys.modules[package]), *modules})
