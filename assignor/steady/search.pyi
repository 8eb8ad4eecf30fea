"""Types of the compiled `search.pyx`."""

from trimtab.assignor.steady.bins import Bins

def search(bins: Bins, tries: int, seed: int) -> None: ...
