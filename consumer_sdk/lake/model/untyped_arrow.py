"""Names of pyarrow, which ships no types."""

from typing import Any, TypeAlias

import pyarrow.compute as arrow_compute

Array: TypeAlias = Any
Table: TypeAlias = Any
pc: Any = arrow_compute  # its functions are made when it is imported: type checkers know few of them
