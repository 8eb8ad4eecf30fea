"""Types of the compiled `close.pyx`."""

from trimtab.assignor.steady.bins import Bins

def close(bins: Bins, tries: int) -> None: ...
