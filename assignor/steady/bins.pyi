from trimtab.assignor.model import FloatArray, IntArray, Outlook, Problem
from trimtab.assignor.steady.tolls import Tolls

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
