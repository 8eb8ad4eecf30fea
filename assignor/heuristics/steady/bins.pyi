from trimtab.assignor.heuristics.steady.cross_rack_costs import CrossRackCosts
from trimtab.assignor.model import FloatArray, IntArray, PackingProblem, RateForecast

class Bins:
    objective: float

    def __init__(
        self,
        problem: PackingProblem,
        forecast: RateForecast,
        bin_cost: float,
        move_cost: FloatArray,
        eviction_cost: float,
        cross_rack: CrossRackCosts | None = None,
    ) -> None: ...
    def copy_bins(self) -> Bins: ...
    def copy_placement(self) -> IntArray: ...
    def reset_placement(self, placement: IntArray) -> None: ...
