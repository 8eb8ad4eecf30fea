from trimtab.assignor.model import IntArray
from trimtab.assignor.steady.bins import Bins

def nearer(bins: Bins, order: IntArray, floor: float = 0.0, ceiling: float = 1.0) -> None: ...
