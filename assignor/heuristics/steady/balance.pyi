from trimtab.assignor.heuristics.steady.bins import Bins
from trimtab.assignor.model import IntArray

def balance_members(bins: Bins, order: IntArray) -> None: ...
