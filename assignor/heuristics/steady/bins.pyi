from trimtab.assignor.heuristics.steady.cross_rack_costs import Tolls
from trimtab.assignor.model import FloatArray, IntArray, Outlook, Problem

class Bins:
    value: float

    def __init__(
        self,
        problem: Problem,
        outlook: Outlook,
        bin_cost: float,
        fare: FloatArray,
        risk_cost: float,
        tolls: Tolls | None = None,
    ) -> None: ...
    def placed(self) -> IntArray: ...
    def restart(self, placed: IntArray) -> None: ...
