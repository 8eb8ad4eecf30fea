"""Types of the compiled `evict.pyx`."""

from trimtab.assignor.steady.bins import Bins

def evict(bins: Bins) -> None: ...
