from trimtab.assignor.heuristics.steady.bins import Bins
from trimtab.assignor.model import IntArray

def level(bins: Bins, order: IntArray) -> None: ...
