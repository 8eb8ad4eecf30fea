from collections.abc import Mapping
from typing import Any

NOT_AN_OBJECT: str
NOT_UTF8: str
NOT_JSON: str
LONE_SURROGATE: str
TOO_DEEP: str

def read_objects(
    values: Any, schema: Any, timestamp_rules: Mapping[str, str], *, dates_are_numbers: bool = False
) -> tuple[Any, dict[int, tuple[str | None, str]]]: ...
def name_type(kind: Any) -> str: ...
