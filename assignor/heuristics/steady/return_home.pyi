from trimtab.assignor.heuristics.steady.bins import Bins
from trimtab.assignor.model import IntArray

def return_items_home(bins: Bins, order: IntArray) -> None: ...
