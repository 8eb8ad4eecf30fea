"""Type variables that several packages use."""

from typing import TypeVar

ResultT = TypeVar("ResultT")  # of a callable that is retried, timed or run elsewhere
