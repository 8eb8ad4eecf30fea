from trimtab.assignor.model import IntArray
from trimtab.assignor.steady.bins import Bins

def level(bins: Bins, order: IntArray) -> None: ...
