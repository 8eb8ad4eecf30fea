"""Ranges of the figures in control topics: a figure outside spoils its record, not a reader."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

MAX_FIGURE: Final = 10**18  # sums over all partitions stay finite, and a count fits in 64 bits
LEAST_DIVISOR: Final = 1e-6  # a figure divided by it, or by two of them, stays finite
MAX_INT32: Final = 2**31 - 1
MAX_TIMESTAMP_S: Final = 253_402_300_799  # the end of the year 9999, the last of datetime


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Annotation of a number from `ge` to `le`; NaN is in no range."""

    le: int = MAX_FIGURE
    ge: float = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Return the number's schema with the limits."""
        schema: Any = handler(source)
        limited: Any = {**schema, "ge": self.ge, "le": self.le}
        return cast("CoreSchema", limited)


Figure = Annotated[float, NumberRange()]
PositiveFigure = Annotated[float, NumberRange(ge=LEAST_DIVISOR)]
Fraction = Annotated[float, NumberRange(le=1, ge=LEAST_DIVISOR)]
Timestamp = Annotated[float, NumberRange(le=MAX_TIMESTAMP_S)]  # seconds since the epoch
Count = Annotated[int, NumberRange()]
Int32 = Annotated[int, NumberRange(le=MAX_INT32)]
