from collections.abc import Collection, Mapping
from typing import Any

NOT_AN_OBJECT: str

def read_objects(
    values: Any,
    schema: Any,
    timestamp_rules: Mapping[str, str],
    *,
    dates_are_numbers: bool = False,
    nulls_outside: Collection[str] = ...,
    spared: Collection[str] = ...,
    most_bytes: int = ...,
) -> tuple[Any, dict[int, tuple[str | None, str]]]: ...
def find_wrapped(values: Any, is_typed: bool) -> Any: ...
def name_type(kind: Any) -> str: ...
