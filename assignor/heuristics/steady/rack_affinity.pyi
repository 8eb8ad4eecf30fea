from trimtab.assignor.heuristics.steady.bins import Bins
from trimtab.assignor.model import IntArray

def improve_rack_affinity(bins: Bins, order: IntArray, floor: float = 0.0, ceiling: float = 1.0) -> None: ...
