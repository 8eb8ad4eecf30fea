from trimtab.assignor.heuristics.steady.bins import Bins
from trimtab.assignor.model import IntArray

def homeward(bins: Bins, order: IntArray) -> None: ...
